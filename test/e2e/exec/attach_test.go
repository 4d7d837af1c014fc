package exec_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
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
			servertest.Refused(t, err, call.code, call.reason, call.field, call.words...)
		})
	}
	stream := attachRaw(t, d)
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	_, err := stream.Recv()
	servertest.Refused(t, err, codes.InvalidArgument, "ATTACH_MESSAGE_INVALID", "start", "the first message")
	_, err = d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}, Tty: &agboxv1.TerminalSize{Rows: 24}})
	servertest.Refused(t, err, codes.InvalidArgument, "TERMINAL_SIZE_INVALID", "tty.columns", "1 to 65535")
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
	first := attachRaw(t, d, startOf(&agboxv1.AttachExecStart{ExecId: exec, StdoutOffset: new(uint64(0)), StderrOffset: new(uint64(2))}))
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
	whole := attachRaw(t, d, startOf(&agboxv1.AttachExecStart{ExecId: exec, StdoutOffset: new(uint64(0))}))
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
		"late":   {attachRaw(t, d, startOf(&agboxv1.AttachExecStart{ExecId: exec, StdoutOffset: new(uint64(8)), StderrOffset: new(uint64(0))})), "t one\ngot two\n", "oops\nend\n"},
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
		start := startOf(&agboxv1.AttachExecStart{ExecId: exec, StdoutOffset: new(uint64(0))})
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
		if response.GetStarted() != nil { // which is told when it is known
			response, err = stream.Recv()
		}
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
