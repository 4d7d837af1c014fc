package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/servertest"
)

func attachRaw(t *testing.T, d *servertest.Daemon, messages ...*agboxv1.AttachExecRequest) *raw.AttachStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	stream, err := d.AttachExec(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range messages {
		if err := stream.Send(message); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	return stream
}

func startOf(start *agboxv1.AttachExecStart) *agboxv1.AttachExecRequest {
	return &agboxv1.AttachExecRequest{Message: &agboxv1.AttachExecRequest_Start{Start: start}}
}

func stdinOf(text string) *agboxv1.AttachExecRequest {
	return &agboxv1.AttachExecRequest{Message: &agboxv1.AttachExecRequest_Stdin{Stdin: []byte(text)}}
}

func resizeOf(rows, columns uint32) *agboxv1.AttachExecRequest {
	return &agboxv1.AttachExecRequest{Message: &agboxv1.AttachExecRequest_Resize{
		Resize: &agboxv1.TerminalSize{Rows: rows, Columns: columns}}}
}

var closeOf = &agboxv1.AttachExecRequest{Message: &agboxv1.AttachExecRequest_CloseStdin{CloseStdin: true}}

// attached is what came by a stream until it ended.
type attached struct {
	first, ended   *agboxv1.ExecStatus
	stdout, stderr strings.Builder
	from           [2]uint64 // where stdout and stderr began
	taken          uint64
}

// drainAttach reads a stream to its end, or until done accepts what came. The order of the messages must be as promised.
func drainAttach(stream *raw.AttachStream, done func(*attached) bool) (*attached, error) {
	got := &attached{}
	var next [2]uint64
	var begun [2]bool
	chunk := func(i int, to *strings.Builder, c *agboxv1.ExecLogChunk) error {
		if !begun[i] {
			begun[i], got.from[i], next[i] = true, c.Offset, c.Offset
		}
		if c.Offset != next[i] || len(c.Data) > 64<<10 {
			return fmt.Errorf("a chunk of %d bytes at %d, where %d is next", len(c.Data), c.Offset, next[i])
		}
		next[i] += uint64(len(c.Data))
		to.Write(c.Data)
		return nil
	}
	for done == nil || !done(got) {
		response, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && got.ended == nil:
			return got, errors.New("the stream ended without saying how the exec did")
		case errors.Is(err, io.EOF):
			return got, nil
		case err != nil:
			return got, err
		case got.ended != nil || (got.first == nil) != (response.GetAttached() != nil):
			return got, fmt.Errorf("in the wrong place: %v", response)
		}
		switch m := response.Message.(type) {
		case *agboxv1.AttachExecResponse_Attached:
			got.first = m.Attached
		case *agboxv1.AttachExecResponse_Stdout:
			err = chunk(0, &got.stdout, m.Stdout)
		case *agboxv1.AttachExecResponse_Stderr:
			err = chunk(1, &got.stderr, m.Stderr)
		case *agboxv1.AttachExecResponse_Ended:
			got.ended = m.Ended
		case *agboxv1.AttachExecResponse_StdinTaken:
			got.taken = m.StdinTaken
		}
		if err != nil {
			return got, err
		}
	}
	return got, nil
}

func offset(n uint64) *uint64 { return &n }

func hasText(text string) func(*attached) bool {
	return func(a *attached) bool { return strings.Contains(a.stdout.String(), text) }
}

// TestAttachRefusals: what cannot be asked for, and why, in time for a person.
func TestAttachRefusals(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	plain := d.Script(id, "")
	cat := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"cat"}, Stdin: true}).ExecId
	screen := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"cat"}, Tty: &agboxv1.TerminalSize{Rows: 1, Columns: 1}}).ExecId
	sleep := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sleep", "300"}, Stdin: true}).ExecId
	start := func(exec string) *agboxv1.AttachExecRequest {
		return startOf(&agboxv1.AttachExecStart{ExecId: exec})
	}
	for name, call := range map[string]struct {
		messages      []*agboxv1.AttachExecRequest
		code          codes.Code
		reason, field string
		words         []string
	}{
		"no exec":        {[]*agboxv1.AttachExecRequest{start("never-was")}, codes.NotFound, "EXEC_NOT_FOUND", "", nil},
		"no start":       {[]*agboxv1.AttachExecRequest{stdinOf("x")}, codes.InvalidArgument, "ATTACH_MESSAGE_INVALID", "start", []string{"first"}},
		"two starts":     {[]*agboxv1.AttachExecRequest{start(cat), start(cat)}, codes.InvalidArgument, "ATTACH_MESSAGE_INVALID", "start", []string{"before"}},
		"nothing":        {[]*agboxv1.AttachExecRequest{start(cat), {}}, codes.InvalidArgument, "ATTACH_MESSAGE_INVALID", "message", []string{"send stdin"}},
		"no input":       {[]*agboxv1.AttachExecRequest{start(plain), stdinOf("x")}, codes.FailedPrecondition, "STDIN_NOT_OPEN", "stdin", []string{plain, "start it with stdin"}},
		"no end":         {[]*agboxv1.AttachExecRequest{start(plain), closeOf}, codes.FailedPrecondition, "STDIN_NOT_OPEN", "close_stdin", []string{plain}},
		"no terminal":    {[]*agboxv1.AttachExecRequest{start(cat), resizeOf(1, 1)}, codes.FailedPrecondition, "NO_TERMINAL", "resize", []string{cat, "start it with tty"}},
		"no rows":        {[]*agboxv1.AttachExecRequest{start(screen), resizeOf(0, 1)}, codes.InvalidArgument, "TERMINAL_SIZE_INVALID", "resize.rows", []string{"1 to 65535"}},
		"large columns":  {[]*agboxv1.AttachExecRequest{start(screen), resizeOf(1, 65536)}, codes.InvalidArgument, "TERMINAL_SIZE_INVALID", "resize.columns", []string{"65536"}},
		"large message":  {[]*agboxv1.AttachExecRequest{start(cat), stdinOf(strings.Repeat("x", 5<<20))}, codes.ResourceExhausted, "REQUEST_TOO_LARGE", "stdin", nil},
		"input after it": {[]*agboxv1.AttachExecRequest{start(sleep), closeOf, stdinOf("x")}, codes.FailedPrecondition, "STDIN_NOT_OPEN", "stdin", []string{"after close_stdin"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := drainAttach(attachRaw(t, d, call.messages...), nil)
			refused(t, err, call.code, call.reason, call.field, call.words...)
		})
	}
	stream := attachRaw(t, d)
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	_, err := stream.Recv()
	refused(t, err, codes.InvalidArgument, "ATTACH_MESSAGE_INVALID", "start", "the first message")
	_, err = d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}, Tty: &agboxv1.TerminalSize{Rows: 24}})
	refused(t, err, codes.InvalidArgument, "TERMINAL_SIZE_INVALID", "tty.columns", "1 to 65535")
	if state, err := d.GetExec(t.Context(), &agboxv1.GetExecRequest{ExecId: cat}); err != nil || state.Exec.State != agboxv1.ExecState_EXEC_STATE_RUNNING {
		t.Errorf("what was refused has ended the command: %v, %v", state, err)
	}
}

// TestAttach: input and output of one command, by several clients, of which some half-close, leave, or read nothing.
func TestAttach(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	exec := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Stdin: true,
		Command: []string{"sh", "-c", "echo ready; echo oops >&2; while read line; do echo got $line; done; echo end >&2; exit 7"}}).ExecId
	first := attachRaw(t, d, startOf(&agboxv1.AttachExecStart{ExecId: exec, StdoutOffset: offset(0), StderrOffset: offset(2)}))
	got, err := drainAttach(first, func(a *attached) bool { return a.stdout.String() == "ready\n" && a.stderr.String() == "ps\n" })
	if err != nil || got.first.State != agboxv1.ExecState_EXEC_STATE_RUNNING || !got.first.Stdin || got.first.Tty {
		t.Fatalf("got %+v, %v", got, err)
	}

	// Whoever comes without offsets sees what comes then.
	idle := attachRaw(t, d, startOf(&agboxv1.AttachExecStart{ExecId: exec}))
	if _, err := drainAttach(idle, func(a *attached) bool { return a.first != nil }); err != nil {
		t.Fatal(err)
	}
	leaver := attachRaw(t, d, startOf(&agboxv1.AttachExecStart{ExecId: exec}), stdinOf("one\n"))
	got, err = drainAttach(leaver, func(a *attached) bool { return a.stdout.String() == "got one\n" && a.taken == 4 })
	if err != nil || got.from != [2]uint64{6, 5} {
		t.Fatalf("the second sees %q from %v, %v", got.stdout.String(), got.from, err)
	}
	leaver.Close()
	silent := attachRaw(t, d, startOf(&agboxv1.AttachExecStart{ExecId: exec, NoOutput: true}), stdinOf("two\n"))
	if err := silent.CloseSend(); err != nil {
		t.Fatal(err)
	}
	whole := attachRaw(t, d, startOf(&agboxv1.AttachExecStart{ExecId: exec, StdoutOffset: offset(0)}))
	if got, err = drainAttach(whole, hasText("got two\n")); err != nil || got.stdout.String() != "ready\ngot one\ngot two\n" {
		t.Fatalf("from the beginning comes %q, %v", got.stdout.String(), err)
	}
	if err := whole.Send(closeOf); err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]struct {
		stream         *raw.AttachStream
		stdout, stderr string
	}{
		"first":  {first, "got one\ngot two\n", "end\n"},
		"silent": {silent, "", ""},
		"idle":   {idle, "got one\ngot two\n", "end\n"},
		"whole":  {whole, "", "end\n"},
		"late":   {attachRaw(t, d, startOf(&agboxv1.AttachExecStart{ExecId: exec, StdoutOffset: offset(8), StderrOffset: offset(0)})), "t one\ngot two\n", "oops\nend\n"},
	} {
		got := &attached{}
		err := rest(client.stream, got)
		if err != nil || got.ended.GetExitCode() != 7 || got.ended.GetState() != agboxv1.ExecState_EXEC_STATE_FINISHED {
			t.Errorf("%s: %v, %v", name, got.ended, err)
		}
		if got.stdout.String() != client.stdout || got.stderr.String() != client.stderr {
			t.Errorf("%s: got %q and %q", name, got.stdout.String(), got.stderr.String())
		}
	}

	// What comes too late is no error.
	late := attachRaw(t, d, startOf(&agboxv1.AttachExecStart{ExecId: exec}), stdinOf("late\n"))
	if got, err = drainAttach(late, nil); err != nil || got.ended.GetExitCode() != 7 || got.taken != 0 {
		t.Errorf("input after the end: %+v, %v", got, err)
	}
}

// rest reads on to the end of a stream whose beginning was read, or not.
func rest(stream *raw.AttachStream, got *attached) error {
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) && got.ended != nil {
			return nil
		} else if err != nil {
			return err
		}
		got.stdout.Write(response.GetStdout().GetData())
		got.stderr.Write(response.GetStderr().GetData())
		if ended := response.GetEnded(); ended != nil {
			got.ended = ended
		}
	}
}

// TestAttachPaused: nothing is lost of what is sent to a sandbox that stands still.
func TestAttachPaused(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	exec := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Stdin: true, Command: []string{"cat"}}).ExecId
	stream := attachRaw(t, d, startOf(&agboxv1.AttachExecStart{ExecId: exec}), stdinOf("a"))
	if _, err := drainAttach(stream, hasText("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.PauseSandbox(t.Context(), &agboxv1.PauseSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_PAUSED)
	for _, message := range []*agboxv1.AttachExecRequest{stdinOf("b"), closeOf} {
		if err := stream.Send(message); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.UnpauseSandbox(t.Context(), &agboxv1.UnpauseSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	got := &attached{}
	if err := rest(stream, got); err != nil || got.stdout.String() != "b" || got.ended.GetState() != agboxv1.ExecState_EXEC_STATE_FINISHED {
		t.Errorf("got %q, %v, %v", got.stdout.String(), got.ended, err)
	}
}

// TestAttachInputClosed: what the command does not take any more is dropped, and is no reason to refuse its output.
func TestAttachInputClosed(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	for name, script := range map[string]string{
		"by itself":  "exec </dev/null; echo closed",
		"by another": "cat; echo closed",
	} {
		if end, _, stderr := d.Exec(id, "sh", "-c", "rm -f /tmp/gate; mkfifo /tmp/gate"); end.ExitCode != 0 {
			t.Fatal(stderr)
		}
		exec := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Stdin: true,
			Command: []string{"sh", "-c", script + "; read go </tmp/gate; echo end"}}).ExecId
		start := startOf(&agboxv1.AttachExecStart{ExecId: exec, StdoutOffset: offset(0)})
		stream := attachRaw(t, d, start)
		if name == "by another" {
			attachRaw(t, d, startOf(&agboxv1.AttachExecStart{ExecId: exec}), closeOf)
		}
		if got, err := drainAttach(stream, hasText("closed\n")); err != nil {
			t.Fatalf("%s: %q, %v", name, got.stdout.String(), err)
		}
		for range 2 {
			if err := stream.Send(stdinOf("x")); err != nil {
				t.Fatal(err)
			}
		}
		// The daemon takes messages in order: a client's own end of input comes after what it has sent.
		if err := stream.Send(closeOf); err != nil {
			t.Fatal(err)
		}
		response, err := stream.Recv()
		if taken, is := response.GetMessage().(*agboxv1.AttachExecResponse_StdinTaken); err != nil || !is || taken.StdinTaken != 0 {
			t.Errorf("%s: after the input came %v, %v", name, response, err)
		}
		if end, _, stderr := d.Exec(id, "sh", "-c", "echo go >/tmp/gate"); end.ExitCode != 0 {
			t.Fatal(stderr)
		}
		got := &attached{}
		if err := rest(stream, got); err != nil || got.stdout.String() != "end\n" || got.ended.GetExitCode() != 0 {
			t.Errorf("%s: at the end came %q, %v, %v", name, got.stdout.String(), got.ended, err)
		}
	}
}

// randomBytes is the same for the same seed.
func randomBytes(seed byte, n int) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{seed}), int64(n))
}

func sumOf(t *testing.T, r io.Reader) [sha256.Size]byte {
	t.Helper()
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		t.Fatal(err)
	}
	return [sha256.Size]byte(sum.Sum(nil))
}

func sdkClient(t *testing.T, d *servertest.Daemon, opts ...sdk.Option) *sdk.Client {
	t.Helper()
	client, err := sdk.New(append(opts, sdk.WithSocket(d.Socket()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// feedIn puts all of r into the command's input and closes that.
func feedIn(t *testing.T, a *sdk.Attachment, r io.Reader) {
	if _, err := io.CopyBuffer(struct{ io.Writer }{a}, r, make([]byte, 1<<20)); err != nil {
		t.Error(err)
	} else if err := a.CloseStdin(); err != nil {
		t.Error(err)
	}
}

// TestAttachMuch: what goes in comes out, and readers at different offsets see the same.
func TestAttachMuch(t *testing.T) {
	t.Parallel()
	attachMuch(t, 8<<20)
}

func attachMuch(t *testing.T, size int) {
	t.Helper()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	client := sdkClient(t, d)
	exec, err := client.CreateExec(t.Context(), id, []string{"cat"}, sdk.WithStdin())
	if err != nil {
		t.Fatal(err)
	}
	idle := attachRaw(t, d, startOf(&agboxv1.AttachExecStart{ExecId: exec.ID, StdoutOffset: offset(0)}))
	offsets := []uint64{0, 1_234_567, uint64(size) - 1}
	sums := make([]hashed, len(offsets))
	var group sync.WaitGroup
	for i, from := range offsets {
		reader, err := client.AttachExec(t.Context(), exec.ID, sdk.WithOutputFrom(from, 0), sdk.WithOutput(&sums[i], nil))
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			if _, err := reader.Wait(); err != nil {
				t.Error(err)
			}
			if stdout, _ := reader.Offsets(); stdout != uint64(size) {
				t.Errorf("a reader has come to %d", stdout)
			}
		})
	}
	writer, err := client.AttachExec(t.Context(), exec.ID)
	if err != nil {
		t.Fatal(err)
	}
	feedIn(t, writer, randomBytes(1, size))
	if end, err := writer.Wait(); err != nil || end.ExitCode != 0 {
		t.Errorf("ended as %+v, %v", end, err)
	}
	group.Wait()
	for i, from := range offsets {
		all := randomBytes(1, size)
		if _, err := io.CopyN(io.Discard, all, int64(from)); err != nil {
			t.Fatal(err)
		}
		if want := sumOf(t, all); sums[i].sum(t) != want || sums[i].n != int64(size)-int64(from) {
			t.Errorf("from %d: %d other bytes came", from, sums[i].n)
		}
	}
	if got, err := drainAttach(idle, nil); err != nil || got.stdout.Len() != size {
		t.Errorf("who did not read until now gets %d bytes, %v", got.stdout.Len(), err)
	}
}

// hashed is a writer that keeps what was written, to be summed up.
type hashed struct {
	pieces [][]byte
	n      int64
	begun  chan struct{} // holds one once there is something; may be nil
}

func (h *hashed) Write(p []byte) (int, error) {
	h.pieces = append(h.pieces, bytes.Clone(p))
	h.n += int64(len(p))
	select {
	case h.begun <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (h *hashed) sum(t *testing.T) [sha256.Size]byte {
	var all []io.Reader
	for _, piece := range h.pieces {
		all = append(all, bytes.NewReader(piece))
	}
	return sumOf(t, io.MultiReader(all...))
}

// trip is a reader that calls at once, when it has come to a place.
type trip struct {
	io.Reader
	left int
	at   func()
}

func (r *trip) Read(p []byte) (int, error) {
	if r.left > 0 {
		p = p[:min(len(p), r.left)]
	}
	n, err := r.Reader.Read(p)
	if r.left > 0 {
		if r.left -= n; r.left <= 0 {
			r.at()
		}
	}
	return n, err
}

// TestAttachOverRestart: the daemon ends in the middle of a stream of input, while the command reads none, and neither
// input nor output loses or repeats a byte.
func TestAttachOverRestart(t *testing.T) {
	t.Parallel()
	const size = 16 << 20
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	var mu sync.Mutex
	broken := 0
	client := sdkClient(t, d, sdk.WithBrokenStream(func(error) { mu.Lock(); broken++; mu.Unlock() }))
	exec, err := client.CreateExec(t.Context(), id, []string{"cat"}, sdk.WithStdin())
	if err != nil {
		t.Fatal(err)
	}
	var out hashed
	reader, err := client.AttachExec(t.Context(), exec.ID, sdk.WithOutputFrom(0, 0), sdk.WithOutput(&out, nil))
	if err != nil {
		t.Fatal(err)
	}
	writer, err := client.AttachExec(t.Context(), exec.ID)
	if err != nil {
		t.Fatal(err)
	}
	reached, restarted := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(restarted)
		<-reached
		d.Restart() // while the next piece is under way
	}()
	feedIn(t, writer, &trip{Reader: randomBytes(2, size), left: size / 3, at: func() { close(reached) }})
	<-restarted
	if end, err := writer.Wait(); err != nil || end.ExitCode != 0 {
		t.Errorf("ended as %+v, %v", end, err)
	}
	if _, err := reader.Wait(); err != nil {
		t.Error(err)
	}
	if out.n != size || out.sum(t) != sumOf(t, randomBytes(2, size)) {
		t.Errorf("%d bytes of %d came back, or others", out.n, size)
	}
	mu.Lock()
	defer mu.Unlock()
	if broken == 0 {
		t.Error("the restart was not noticed")
	}
}

// TestAttachRestartInWrite: what a write that stood still had passed on before the daemon ended is known exactly.
func TestAttachRestartInWrite(t *testing.T) {
	t.Parallel()
	const size = 3 << 20 // more than all that lies between
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	exec, release := heldBackInput(t, d, id)
	away := make(chan struct{}, 100)
	client := sdkClient(t, d, sdk.WithBrokenStream(func(error) { away <- struct{}{} }))
	out := hashed{begun: make(chan struct{}, 1)}
	a, err := client.AttachExec(t.Context(), exec, sdk.WithOutputFrom(0, 0), sdk.WithOutput(&out, nil))
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		feedIn(t, a, randomBytes(3, size))
	}()
	<-out.begun // so that some of the write was taken, and cannot all be
	d.Restart()
	<-away
	release()
	<-written
	if end, err := a.Wait(); err != nil || end.ExitCode != 0 {
		t.Errorf("ended as %+v, %v", end, err)
	}
	if out.n != size || out.sum(t) != sumOf(t, randomBytes(3, size)) {
		t.Errorf("%d bytes of %d came back, or others", out.n, size)
	}
}

// heldBackInput begins a cat that reads one byte of its input, and the rest once release is called.
func heldBackInput(t *testing.T, d *servertest.Daemon, sandboxID string) (execID string, release func()) {
	t.Helper()
	if end, _, stderr := d.Exec(sandboxID, "mkfifo", "/tmp/gate"); end.ExitCode != 0 {
		t.Fatal(stderr)
	}
	execID = d.Begin(&agboxv1.CreateExecRequest{SandboxId: sandboxID, Stdin: true,
		Command: []string{"sh", "-c", "dd bs=1 count=1 2>/dev/null; read go </tmp/gate; exec cat"}}).ExecId
	return execID, func() {
		t.Helper()
		if end, _, stderr := d.Exec(sandboxID, "sh", "-c", "echo go >/tmp/gate"); end.ExitCode != 0 {
			t.Fatal(stderr)
		}
	}
}

// TestAttachTerminal: a shell is typed at, resized, left, met again, and ended.
func TestAttachTerminal(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	client := sdkClient(t, d)
	exec, err := client.CreateExec(t.Context(), id, []string{"sh"}, sdk.WithTerminal(10, 40), sdk.WithEnv(map[string]string{"PS1": "$ "}))
	if err != nil {
		t.Fatal(err)
	}
	screen := newScreen()
	a, err := client.AttachExec(t.Context(), exec.ID, sdk.WithOutputFrom(0, 0), sdk.WithOutput(screen, nil))
	if err != nil {
		t.Fatal(err)
	}
	if !a.Exec().Terminal {
		t.Errorf("got %+v", a.Exec())
	}
	screen.await(t, `\$ `)
	typeIn(t, a, "stty size; tty\r")
	screen.await(t, `10 40\r\n/dev/pts/\d+\r\n`)
	if err := a.Resize(33, 122); err != nil {
		t.Fatal(err)
	}
	typeIn(t, a, "stty size\r")
	screen.await(t, `33 122\r\n`)
	a.Detach()
	if _, err := a.Wait(); !errors.Is(err, sdk.ErrDetached) {
		t.Errorf("after Detach: %v", err)
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, sdk.ErrDetached) {
		t.Errorf("a write after Detach: %v", err)
	}
	stdout, stderr := a.Offsets()
	a, err = client.AttachExec(t.Context(), exec.ID, sdk.WithOutputFrom(stdout, stderr), sdk.WithOutput(screen, nil))
	if err != nil {
		t.Fatal(err)
	}
	typeIn(t, a, "echo a\"\"gain; exit 5\r")
	if end, err := a.Wait(); err != nil || end.ExitCode != 5 {
		t.Errorf("ended as %+v, %v", end, err)
	}
	screen.await(t, `\nagain\r\n`)
	if _, err := a.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a write after the end: %v", err)
	}
	log, err := os.ReadFile(exec.StdoutPath)
	if err != nil || string(log) != screen.text() {
		t.Errorf("the log is %q, and was seen as %q, %v", log, screen.text(), err)
	}
}

// TestAttachWithout: the SDK knows by itself what a command does not have.
func TestAttachWithout(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	client := sdkClient(t, d)
	a, err := client.AttachExec(t.Context(), d.Script(id, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Detach()
	_, err = a.Write([]byte("x"))
	for name, err := range map[string]error{"Write": err, "CloseStdin": a.CloseStdin()} {
		if !errors.Is(err, sdk.ErrStdinNotOpen) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := a.Resize(1, 1); !errors.Is(err, sdk.ErrNoTerminal) {
		t.Errorf("Resize: %v", err)
	}
	if _, err := client.AttachExec(t.Context(), "never-was"); !errors.Is(err, sdk.ErrExecNotFound) {
		t.Errorf("of no exec: %v", err)
	}
}

func typeIn(t *testing.T, a *sdk.Attachment, keys string) {
	t.Helper()
	if n, err := a.Write([]byte(keys)); err != nil || n != len(keys) {
		t.Fatalf("%d of %q were typed: %v", n, keys, err)
	}
}

// screen is what a terminal has shown.
type screen struct {
	mu     sync.Mutex
	all    bytes.Buffer
	from   int
	change chan struct{}
}

func newScreen() *screen { return &screen{change: make(chan struct{}, 1)} }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.Write(p)
	select {
	case s.change <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// await returns once what was shown after the last call matches.
func (s *screen) await(t *testing.T, pattern string) {
	t.Helper()
	form := regexp.MustCompile(pattern)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		text := s.text()
		if at := form.FindStringIndex(text[s.from:]); at != nil {
			s.from += at[1]
			return
		}
		select {
		case <-s.change:
		case <-ctx.Done():
			t.Fatalf("%q was not shown, but %q", pattern, text[s.from:])
		}
	}
}
