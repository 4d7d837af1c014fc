package exec_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/servertest"
)

func openLog(t *testing.T, d *servertest.Daemon, req *agboxv1.ReadExecLogRequest) *raw.LogStream {
	t.Helper()
	stream, err := d.ReadExecLog(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Close)
	return stream
}

// drain reads a log to its end. Each chunk must follow the one before and be of the size promised.
func drain(stream *raw.LogStream, to io.Writer) error {
	next, first := uint64(0), true
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if !first && chunk.Offset != next || len(chunk.Data) > 64<<10 {
			return fmt.Errorf("a chunk of %d bytes at %d, where %d is next", len(chunk.Data), chunk.Offset, next)
		}
		next, first = chunk.Offset+uint64(len(chunk.Data)), false
		if _, err := to.Write(chunk.Data); err != nil {
			return err
		}
	}
}

func logText(t *testing.T, d *servertest.Daemon, req *agboxv1.ReadExecLogRequest) string {
	t.Helper()
	var text bytes.Buffer
	if err := drain(openLog(t, d, req), &text); err != nil {
		t.Errorf("the log of %v: %v", req, err)
	}
	return text.String()
}

// heldBack begins a command that runs lines once the function returned is called. Further calls are for lines that read
// from descriptor 3; each returns once the command can read it.
func heldBack(t *testing.T, d *servertest.Daemon, sandboxID, execID, lines string) (*agboxv1.CreateExecResponse, func()) {
	t.Helper()
	gate := "/tmp/gate-" + execID
	if end, _, stderr := d.Exec(sandboxID, "mkfifo", gate); end.ExitCode != 0 {
		t.Fatal(stderr)
	}
	created := d.Begin(&agboxv1.CreateExecRequest{SandboxId: sandboxID, ExecId: execID,
		Command: []string{"sh", "-c", "exec 3<>" + gate + "\nread go <&3\n" + lines}})
	return created, func() {
		t.Helper()
		if end, _, stderr := d.Exec(sandboxID, "sh", "-c", "echo go >"+gate); end.ExitCode != 0 {
			t.Fatal(stderr)
		}
	}
}

// TestLog: the whole of it, and parts, without and with follow, of an exec that has ended.
func TestLog(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	const all = "0123456789"
	exec := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c", "printf " + all + "; printf oops >&2; exit 3"}}).ExecId
	d.ExecEnd(id, exec)
	for _, follow := range []bool{false, true} {
		for want, req := range map[string]*agboxv1.ReadExecLogRequest{
			all:         {},
			"123456789": {Stream: "stdout", Offset: 1},
			"oops":      {Stream: "stderr"},
			"ops":       {Stream: "stderr", TailBytes: new(uint64(3)), Offset: 2},
			"789":       {TailBytes: new(uint64(3))},
		} {
			req.ExecId, req.Follow = exec, follow
			if got := logText(t, d, req); got != want {
				t.Errorf("%v is %q, want %q", req, got, want)
			}
		}
		if got := logText(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec, Follow: follow, TailBytes: new(uint64(math.MaxUint64))}); got != all {
			t.Errorf("a tail that is longer than the log is %q", got)
		}
		for _, req := range []*agboxv1.ReadExecLogRequest{{TailBytes: new(uint64(0))}, {Offset: 10}, {Offset: 11}, {Offset: math.MaxUint64}} {
			req.ExecId, req.Follow = exec, follow
			if got := logText(t, d, req); got != "" {
				t.Errorf("%v is %q", req, got)
			}
		}
	}
	_, err := openLog(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec, Stream: "stdin"}).Recv()
	servertest.Refused(t, err, codes.InvalidArgument, "LOG_STREAM_INVALID", "stream", `"stdin" is not an output`, "use stdout, stderr or both")
	_, err = openLog(t, d, &agboxv1.ReadExecLogRequest{ExecId: "never-was", Follow: true}).Recv()
	servertest.Refused(t, err, codes.NotFound, "EXEC_NOT_FOUND", "")

	lost := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"/no/such/command"}}).ExecId
	d.ExecEnd(id, lost)
	for _, follow := range []bool{false, true} {
		if got := logText(t, d, &agboxv1.ReadExecLogRequest{ExecId: lost, Follow: follow}); got != "" {
			t.Errorf("a command that was not found wrote %q", got)
		}
	}
}

// TestLogFile: no link is followed, and output that is gone is not passed off as none.
func TestLogFile(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	exec := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"echo", "text"}})
	d.ExecEnd(id, exec.ExecId)
	if err := os.Remove(exec.StdoutLogPath); err != nil {
		t.Fatal(err)
	}
	for _, follow := range []bool{false, true} {
		err := drain(openLog(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec.ExecId, Follow: follow}), io.Discard)
		servertest.Refused(t, err, codes.Internal, "INTERNAL", "", exec.ExecId+" was removed from the disk")
	}
	if err := os.Symlink("/etc/passwd", exec.StdoutLogPath); err != nil {
		t.Fatal(err)
	}
	for _, req := range []*agboxv1.ReadExecLogRequest{{}, {Follow: true}, {TailBytes: new(uint64(9))}} {
		req.ExecId = exec.ExecId
		err := drain(openLog(t, d, req), io.Discard)
		servertest.Refused(t, err, codes.Internal, "INTERNAL", "", "is a symbolic link: remove it")
	}
}

// TestFollowLog: whenever the following begins, nothing is missing when it ends, which is after the command's end.
func TestFollowLog(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	const lines = 200_000
	var want bytes.Buffer
	for i := 1; i <= lines; i++ {
		fmt.Fprintln(&want, i)
	}
	for name, command := range map[string]string{
		"quick": fmt.Sprintf("seq %d", lines),
		"slow":  fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo $i; done", lines), // a write for each
	} {
		exec, release := heldBack(t, d, id, name, command)
		stream := openLog(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec.ExecId, TailBytes: new(uint64(0)), Follow: true})
		if first, err := stream.Recv(); err != nil || first.Offset != 0 || len(first.Data) != 0 {
			t.Fatalf("%s: before the first byte comes %v, %v", name, first, err)
		}
		release()
		var got bytes.Buffer
		if err := drain(stream, &got); err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%s: got %d bytes, %v, want %d", name, got.Len(), err, want.Len())
		}
		if state, err := d.GetExec(t.Context(), &agboxv1.GetExecRequest{ExecId: exec.ExecId}); err != nil || state.Exec.State != agboxv1.ExecState_EXEC_STATE_FINISHED {
			t.Errorf("%s: the stream has ended, the exec is %v, %v", name, state, err)
		}
		if got := logText(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec.ExecId, Follow: true}); got != want.String() {
			t.Errorf("%s: after the end there are %d bytes", name, len(got))
		}
	}

	exec, release := heldBack(t, d, id, "offset", "printf 01234; printf 56789")
	stream := openLog(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec.ExecId, Offset: 7, Follow: true})
	if first, err := stream.Recv(); err != nil || first.Offset != 7 || len(first.Data) != 0 {
		t.Errorf("first comes %v, %v", first, err)
	}
	release()
	var got bytes.Buffer
	if err := drain(stream, &got); err != nil || got.String() != "789" {
		t.Errorf("from an offset beyond the end came %q, %v", got.String(), err)
	}

	// As before its start: there is no file, and then there is.
	exec, release = heldBack(t, d, id, "nofile", "read go <&3")
	release() // it runs, so that nobody makes the file again
	if err := os.Remove(exec.StdoutLogPath); err != nil {
		t.Fatal(err)
	}
	stream = openLog(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec.ExecId, TailBytes: new(uint64(5)), Follow: true})
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exec.StdoutLogPath, []byte("late"), 0o644); err != nil {
		t.Fatal(err)
	}
	if chunk, err := stream.Recv(); err != nil || chunk.Offset != 0 || string(chunk.Data) != "late" {
		t.Errorf("of a file that appears comes %v, %v", chunk, err)
	}
	release()
	if chunk, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end comes %v, %v", chunk, err)
	}
}

// TestFollowLogEnds: a follower is done, with all that was written, however the exec or its sandbox ends.
func TestFollowLogEnds(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	for name, end := range map[string]func(sandboxID, execID string) error{
		"cancelled": func(_, execID string) error {
			_, err := d.CancelExec(t.Context(), &agboxv1.CancelExecRequest{ExecId: execID})
			return err
		},
		"stopped": func(id, _ string) error {
			_, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id})
			return err
		},
		"deleted": func(id, _ string) error {
			_, err := d.DeleteSandbox(t.Context(), &agboxv1.DeleteSandboxRequest{SandboxId: id})
			return err
		},
		"killed": func(id, _ string) error {
			return d.Engine.ContainerKill(t.Context(), "agbox-primary-"+id, "KILL")
		},
	} {
		id := d.Create(&agboxv1.CreateSpec{})
		exec := d.Script(id, "trap 'echo bye; exit' TERM; echo up; echo err >&2")
		stream := openLog(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec, Follow: true})
		chunk, err := stream.Recv()
		if err == nil {
			chunk, err = stream.Recv() // the first tells that it has begun
		}
		if err != nil || string(chunk.Data) != "up\n" {
			t.Fatalf("%s: first comes %v, %v", name, chunk, err)
		}
		if err := end(id, exec); err != nil {
			t.Fatal(err)
		}
		var rest strings.Builder
		if err := drain(stream, &rest); err != nil {
			t.Errorf("%s: after %q: %v", name, rest.String(), err)
		}
		got, err := d.GetExec(t.Context(), &agboxv1.GetExecRequest{ExecId: exec})
		if err != nil || got.Exec.State == agboxv1.ExecState_EXEC_STATE_RUNNING {
			t.Errorf("%s: the stream has ended, the exec is %v, %v", name, got, err)
		}
		if text := logText(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec}); text != "up\n"+rest.String() {
			t.Errorf("%s: followed to %q, the log is %q", name, rest.String(), text)
		}
		if text := logText(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec, Stream: "stderr", Follow: true}); text != "err\n" {
			t.Errorf("%s: stderr is %q", name, text)
		}
	}
}

// TestManyFollowers: all read the same, and one that reads nothing is in nobody's way, on the same connection too.
func TestManyFollowers(t *testing.T) {
	t.Parallel()
	manyFollowers(t, 10)
}

func manyFollowers(t *testing.T, followers int) {
	t.Helper()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	exec, release := heldBack(t, d, id, "many", "i=0; while [ $i -lt 20 ]; do i=$((i+1)); seq 20000; done")
	idle := openLog(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec.ExecId, Follow: true})
	sums := make([][sha256.Size]byte, followers)
	var readers sync.WaitGroup
	for i := range followers {
		stream := openLog(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec.ExecId, Follow: true})
		readers.Go(func() {
			sum := sha256.New()
			if err := drain(stream, sum); err != nil {
				t.Error(err)
			}
			sums[i] = [sha256.Size]byte(sum.Sum(nil))
		})
	}
	release()
	readers.Wait()
	text, err := os.ReadFile(exec.StdoutLogPath)
	if err != nil || len(text) < 2_000_000 {
		t.Fatalf("the file has %d bytes, %v", len(text), err)
	}
	for i, sum := range sums {
		if sum != sha256.Sum256(text) {
			t.Errorf("follower %d read something else", i)
		}
	}
	var late bytes.Buffer
	if err := drain(idle, &late); err != nil || !bytes.Equal(late.Bytes(), text) {
		t.Errorf("who did not read until now gets %d bytes of %d, %v", late.Len(), len(text), err)
	}
}

// TestFollowLogOverRestart: the daemon tells its followers to come back, and the SDK does, to where it was.
func TestFollowLogOverRestart(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	exec, release := heldBack(t, d, id, "restart", "seq 5000; read go <&3; seq 5000")
	stream := openLog(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec.ExecId, Follow: true})
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	broken := 0
	client, err := sdk.New(sdk.WithSocket(d.Socket()), sdk.WithBrokenStream(func(error) { broken++ }))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	log := client.ReadLog(t.Context(), exec.ExecId, sdk.WithFollow())
	defer log.Close()
	release()
	var seq bytes.Buffer
	for i := range 5000 {
		fmt.Fprintln(&seq, i+1)
	}
	half := make([]byte, seq.Len())
	if _, err := io.ReadFull(log, half); err != nil || !bytes.Equal(half, seq.Bytes()) {
		t.Fatalf("%d bytes before the restart, %v", len(half), err)
	}
	d.Restart()
	servertest.Refused(t, drain(stream, io.Discard), codes.Unavailable, "DAEMON_SHUTTING_DOWN", "")
	release()
	rest, err := io.ReadAll(log)
	if err != nil || !bytes.Equal(rest, seq.Bytes()) || broken == 0 {
		t.Errorf("%d bytes of %d after the restart, %v, broken %d times", len(rest), seq.Len(), err, broken)
	}
}
