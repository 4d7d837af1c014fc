package dockerrt_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// home is a runtime with one sandbox.
type home struct {
	*dockerrt.Docker
	instance, dir, id string
}

// sandbox makes one, which goes with the test.
func sandbox(t *testing.T, instance string) *home {
	t.Helper()
	engine := dockertest.Engine(t)
	t.Cleanup(func() { engine.Close() })
	h := &home{instance: instance, id: instance + "-1"}
	h.Docker, h.dir = open(t, instance)
	spec := &agboxv1.CreateSpec{Image: dockertest.TinyImage(t, engine, dockertest.Busybox)}
	t.Cleanup(func() {
		dockertest.Leftovers(t, engine, h.id)
	})
	h.atEnd(t)
	if _, err := h.Create(t.Context(), h.id, "1", spec, ignore); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *home) atEnd(t *testing.T) {
	d := h.Docker
	t.Cleanup(func() {
		if h.Docker != d { // removed by the later one
			return
		}
		if err := d.Remove(context.Background(), h.id); err != nil {
			t.Error(err)
		}
	})
}

// close ends the runtime; again is the next process of the daemon.
func (h *home) close(t *testing.T) {
	t.Helper()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}

func (h *home) again(t *testing.T) {
	t.Helper()
	h.Docker = reopen(t, h.instance, h.dir)
	h.atEnd(t)
}

// ending is an Exec under way.
type ending struct {
	runtime.ExecResult
	err error
}

func (h *home) start(ctx context.Context, request *agboxv1.CreateExecRequest) <-chan ending {
	d, end := h.Docker, make(chan ending, 1)
	go func() {
		result, err := d.Exec(ctx, request)
		end <- ending{result, err}
	}()
	return end
}

func (h *home) finish(t *testing.T, execID string, end <-chan ending, code int32) {
	t.Helper()
	if got := <-end; got.err != nil || got.ExitCode != code || got.Code != "" {
		t.Fatalf("%+v", got)
	}
	h.ExecRecorded(h.id, execID)
	if _, err := os.Lstat(filepath.Join(h.dir, "exec-results", h.id, execID+".stdin")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the pipe is still there: %v", err)
	}
	if _, err := h.OpenStdin(h.id, execID); !errors.Is(err, runtime.ErrStdinClosed) {
		t.Errorf("after the end: %v", err)
	}
	if err := h.CloseStdin(t.Context(), h.id, execID); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

func (h *home) stdin(t *testing.T, execID string) runtime.Stdin {
	t.Helper()
	in, err := h.OpenStdin(h.id, execID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in
}

// inputSize of random bytes go through a command, and come out of its log.
const inputSize = 64 << 20

func hashed(t *testing.T, path string) [32]byte {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		t.Fatal(err)
	}
	return [32]byte(hash.Sum(nil))
}

// Writers of one daemon and of the next, which closes the input: the command reads every byte once.
func TestStdinAcrossRestart(t *testing.T) {
	t.Parallel()
	h := sandbox(t, "stdin-restart")
	request := &agboxv1.CreateExecRequest{SandboxId: h.id, ExecId: "cat", Command: []string{"cat", "/dev/stdin"}, Stdin: true}
	want, source := sha256.New(), rand.NewChaCha8([32]byte{3})

	detached, detach := context.WithCancel(t.Context())
	in := h.stdin(t, "cat") // before the command was started
	first := h.start(detached, request)
	if n, err := io.Copy(io.MultiWriter(in, want), io.LimitReader(source, inputSize/2)); n != inputSize/2 || err != nil {
		t.Fatal(n, err)
	}
	detach()
	if got := <-first; !errors.Is(got.err, context.Canceled) {
		t.Fatalf("%+v", got)
	}
	h.close(t)
	if _, err := in.Write([]byte("x")); err != nil { // the pipe is still a pipe
		t.Fatal(err)
	}
	want.Write([]byte("x"))
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}

	h.again(t)
	end := h.start(t.Context(), request)
	in = h.stdin(t, "cat")
	if n, err := io.Copy(io.MultiWriter(in, want), io.LimitReader(source, inputSize/2)); n != inputSize/2 || err != nil {
		t.Fatal(n, err)
	}
	if err := h.CloseStdin(t.Context(), h.id, "cat"); err != nil {
		t.Fatal(err)
	}
	if n, err := in.Write([]byte("late")); n != 0 || !errors.Is(err, runtime.ErrStdinClosed) {
		t.Errorf("a write after the end: %d, %v", n, err)
	}
	h.finish(t, "cat", end, 0)
	stdout, _ := h.ExecLogs(h.id, "cat")
	if got := hashed(t, stdout); got != [32]byte(want.Sum(nil)) {
		t.Error("what came out is not what went in")
	}
}

// An input that was closed stays closed over a restart, also where init did not hear of it, or had not started the command.
func TestStdinClosedStaysClosed(t *testing.T) {
	t.Parallel()
	h := sandbox(t, "stdin-closed")
	running := &agboxv1.CreateExecRequest{SandboxId: h.id, ExecId: "running", Command: []string{"sh", "-c", "read x; cat && exit 4"}, Stdin: true}
	detached, detach := context.WithCancel(t.Context())
	first := h.start(detached, running)
	if _, err := h.stdin(t, "running").Write([]byte("a line\n")); err != nil { // so it was started
		t.Fatal(err)
	}
	if err := h.CloseStdin(t.Context(), h.id, "early"); err != nil {
		t.Fatal(err)
	}
	detach()
	<-first
	h.close(t)
	if err := h.CloseStdin(t.Context(), h.id, "running"); err != nil { // nobody is there to tell init
		t.Fatal(err)
	}

	h.again(t)
	for _, execID := range []string{"running", "early"} {
		if _, err := h.OpenStdin(h.id, execID); !errors.Is(err, runtime.ErrStdinClosed) {
			t.Errorf("%s: %v", execID, err)
		}
	}
	h.finish(t, "running", h.start(t.Context(), running), 4)
	for _, tty := range []*agboxv1.TerminalSize{nil, {Rows: 24, Columns: 80}} {
		early := &agboxv1.CreateExecRequest{SandboxId: h.id, ExecId: "early", Command: []string{"cat"}, Stdin: true, Tty: tty}
		if tty != nil {
			early.ExecId = "early-tty"
			if err := h.CloseStdin(t.Context(), h.id, early.ExecId); err != nil {
				t.Fatal(err)
			}
		}
		h.finish(t, early.ExecId, h.start(t.Context(), early), 0)
	}
}

// A Write that waits ends with the input, with the command, and with its client's Close, and nobody else's does then.
func TestStdinWaitingWrite(t *testing.T) {
	t.Parallel()
	h := sandbox(t, "stdin-waits")
	greet := func(in runtime.Stdin) { // it returns once the command was started
		t.Helper()
		if _, err := in.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	flood := func(in runtime.Stdin) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := in.Write(make([]byte, 1<<20)) // more than a pipe holds
			done <- err
		}()
		return done
	}
	const script = "head -c 300000 >/dev/null; echo > /tmp/$0; exec sleep 300"
	request := &agboxv1.CreateExecRequest{SandboxId: h.id, ExecId: "deaf", Command: []string{"sh", "-c", script, "deaf"}, Stdin: true}
	waits := func(execID string) { // until the Write that has begun waits, as much of it was read
		t.Helper()
		look := &agboxv1.CreateExecRequest{SandboxId: h.id, ExecId: "look-" + execID, Command: []string{"cat", "/tmp/" + execID}}
		if got := <-h.start(t.Context(), look); got.err != nil || got.ExitCode != 0 {
			t.Fatalf("%+v", got)
		}
	}
	end := h.start(t.Context(), request)
	leaving, staying := h.stdin(t, "deaf"), h.stdin(t, "deaf")
	made := h.start(t.Context(), &agboxv1.CreateExecRequest{SandboxId: h.id, ExecId: "made", Command: []string{"mkfifo", "/tmp/deaf", "/tmp/closed"}})
	h.finish(t, "made", made, 0)
	greet(leaving)
	greet(staying)
	left := flood(leaving)
	waits("deaf")
	stays := flood(staying)
	if err := leaving.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-left; !errors.Is(err, os.ErrClosed) {
		t.Errorf("its client left: %v", err)
	}
	if err := h.CancelExec(t.Context(), h.id, "deaf"); err != nil {
		t.Fatal(err)
	}
	if err := <-stays; !errors.Is(err, runtime.ErrStdinClosed) {
		t.Errorf("the command ended: %v", err)
	}
	h.finish(t, "deaf", end, 143)

	request.ExecId, request.Command[3] = "closed", "closed"
	end = h.start(t.Context(), request)
	in := h.stdin(t, "closed")
	greet(in)
	wrote := flood(in)
	waits("closed")
	if err := h.CloseStdin(t.Context(), h.id, "closed"); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; !errors.Is(err, runtime.ErrStdinClosed) {
		t.Errorf("closed for good: %v", err)
	}
	if err := h.CancelExec(t.Context(), h.id, "closed"); err != nil {
		t.Fatal(err)
	}
	h.finish(t, "closed", end, 143)

	waiting := h.stdin(t, "none") // asked for without an input, or never
	never := h.stdin(t, "never")
	done := make(chan error, 2)
	go func() { _, err := waiting.Write([]byte("x")); done <- err }()
	end = h.start(t.Context(), &agboxv1.CreateExecRequest{SandboxId: h.id, ExecId: "none", Command: []string{"sleep", "300"}})
	if err := <-done; !errors.Is(err, runtime.ErrStdinClosed) {
		t.Errorf("an exec without input: %v", err)
	}
	if err := h.CancelExec(t.Context(), h.id, "none"); err != nil {
		t.Fatal(err)
	}
	h.finish(t, "none", end, 143)
	go func() { _, err := never.Write([]byte("x")); done <- err }()
	if err := never.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("an exec that never came: %v", err)
	}
}

// A command that closes its input ends the writers, and goes on.
func TestStdinClosedByCommand(t *testing.T) {
	t.Parallel()
	h := sandbox(t, "stdin-unread")
	end := h.start(t.Context(), &agboxv1.CreateExecRequest{SandboxId: h.id, ExecId: "unread", Stdin: true,
		Command: []string{"sh", "-c", "exec <&-; while test ! -e /tmp/go; do sleep 0.05; done; exit 7"}})
	in := h.stdin(t, "unread")
	var err error
	for err == nil {
		_, err = in.Write(make([]byte, 4096))
	}
	if !errors.Is(err, runtime.ErrStdinClosed) {
		t.Errorf("got %v", err)
	}
	if got := <-h.start(t.Context(), &agboxv1.CreateExecRequest{SandboxId: h.id, ExecId: "go", Command: []string{"touch", "/tmp/go"}}); got.err != nil {
		t.Fatal(got.err)
	}
	h.finish(t, "unread", end, 7)
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	h := sandbox(t, "terminal")
	request := &agboxv1.CreateExecRequest{SandboxId: h.id, ExecId: "sh", Tty: &agboxv1.TerminalSize{Rows: 24, Columns: 80},
		Command: []string{"sh", "-c", "read x; stty size; echo $TERM; exit 5"}}
	if err := h.ResizeExec(t.Context(), h.id, "sh", 30, 90); !errors.Is(err, runtime.ErrExecNotStarted) {
		t.Errorf("before the start: %v", err)
	}
	end := h.start(t.Context(), request)
	in := h.stdin(t, "sh")
	if _, err := in.Write([]byte("ke")); err != nil {
		t.Fatal(err)
	}
	if err := h.ResizeExec(t.Context(), h.id, "sh", 30, 90); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("ys\n")); err != nil {
		t.Fatal(err)
	}
	h.finish(t, "sh", end, 5)
	stdout, _ := h.ExecLogs(h.id, "sh")
	if got, err := os.ReadFile(stdout); string(got) != "keys\r\n30 90\r\nxterm-256color\r\n" {
		t.Errorf("%q, %v", got, err)
	}
	if err := h.ResizeExec(t.Context(), h.id, "sh", 30, 90); !errors.Is(err, runtime.ErrExecTerminal) {
		t.Errorf("after the end: %v", err)
	}
}
