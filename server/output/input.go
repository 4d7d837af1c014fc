package output

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/refusal"
	"github.com/agbox-dev/agbox/server/spec"
)

// takenInterval is after how many bytes of input a client is told at the latest that they were taken.
const takenInterval = 1 << 20

// input passes on what one client sends to one command, from a goroutine of its own: serve. The others may be called from
// any.
type input struct {
	reader            *Reader
	sandboxID, execID string
	takes, terminal   bool

	// wake yields when there is something new to report.
	wake chan struct{}
	// alive yields when the command may have started.
	alive chan struct{}

	ctx    context.Context // done by stop
	cancel context.CancelFunc

	// These are serve's own.
	gone      bool                  // nobody reads what is written
	announced uint64                // of taken
	size      *agboxv1.TerminalSize // that the terminal does not have yet

	mu      sync.Mutex
	stopped bool
	stdin   runtime.Stdin // once there was something to write
	taken   uint64
	closed  bool // for good, by this client
	waiting bool // size is set
	refusal error
}

// newInput has stop called when it is done with.
func newInput(ctx context.Context, r *Reader, sandboxID string, request *agboxv1.CreateExecRequest) *input {
	in := &input{reader: r, sandboxID: sandboxID, execID: request.ExecId,
		takes: request.Stdin || request.Tty != nil, terminal: request.Tty != nil,
		wake: make(chan struct{}, 1), alive: make(chan struct{}, 1)}
	in.ctx, in.cancel = context.WithCancel(ctx)
	return in
}

// serve returns after stop, or when it has refused a message.
func (in *input) serve(messages <-chan received) {
	for {
		var next received
		select {
		case next = <-messages:
		case <-in.ctx.Done():
			return
		default:
			in.announce(1)
			select {
			case next = <-messages:
			case <-in.ctx.Done():
				return
			case <-in.alive:
				in.resize()
				continue
			}
		}
		if errors.Is(next.err, io.EOF) {
			messages = nil
			continue
		}
		err := next.err
		if err == nil {
			err = in.handle(next.message)
		}
		if err != nil {
			in.mu.Lock()
			in.refusal = err
			in.mu.Unlock()
			in.notify(in.wake)
			return
		}
		in.announce(takenInterval)
	}
}

func (in *input) handle(message *agboxv1.AttachExecRequest) error {
	switch m := message.Message.(type) {
	case *agboxv1.AttachExecRequest_Stdin:
		return in.write(m.Stdin)
	case *agboxv1.AttachExecRequest_CloseStdin:
		if !m.CloseStdin {
			return nil
		}
		return in.close()
	case *agboxv1.AttachExecRequest_Resize:
		if err := spec.ValidateTerminal("resize", m.Resize); err != nil {
			return err
		}
		if !in.terminal {
			return in.refuse(reasonNoTerminal, "resize", "has no terminal: start it with tty to give it one")
		}
		in.size = m.Resize
		in.resize()
		return nil
	case *agboxv1.AttachExecRequest_Start:
		return &spec.Error{Reason: reasonAttachMessage, Field: "start", Message: "it was sent before: open another stream for another exec"}
	}
	return &spec.Error{Reason: reasonAttachMessage, Field: "message", Message: "it holds nothing that this daemon knows: send stdin, close_stdin or resize"}
}

// refuse answers what a command of this kind cannot take.
func (in *input) refuse(reason, field, message string) error {
	return refusal.New(codes.FailedPrecondition, reason, field, "exec %s %s", in.execID, message)
}

// write returns nil for what the command no longer takes, which is not counted.
func (in *input) write(data []byte) error {
	switch {
	case !in.takes:
		return in.refuse(reasonStdinNotOpen, "stdin", "was started without an input: start it with stdin to give it one")
	case in.closed:
		return in.refuse(reasonStdinNotOpen, "stdin", "has had its input closed by this stream: send nothing after close_stdin")
	case len(data) > refusal.MaxRequest:
		return refusal.New(codes.ResourceExhausted, refusal.ReasonTooLarge, "stdin", "the message is too large: send it in parts, or move what is large into files and mount these")
	case in.gone:
		return nil
	}
	stdin, err := in.open()
	if err == nil {
		var n int
		n, err = stdin.Write(data)
		in.mu.Lock()
		in.taken += uint64(n)
		in.mu.Unlock()
	}
	switch {
	case errors.Is(err, runtime.ErrStdinClosed):
		in.gone = true
	case err != nil && !errors.Is(err, os.ErrClosed): // closed by stop
		return err
	}
	return nil
}

func (in *input) open() (runtime.Stdin, error) {
	if in.stdin != nil {
		return in.stdin, nil
	}
	stdin, err := in.reader.files.OpenStdin(in.sandboxID, in.execID)
	if err != nil {
		return nil, err
	}
	in.mu.Lock()
	stopped := in.stopped
	in.stdin = stdin
	in.mu.Unlock()
	if stopped {
		_ = stdin.Close()
	}
	return stdin, nil
}

func (in *input) close() error {
	if !in.takes {
		return in.refuse(reasonStdinNotOpen, "close_stdin", "was started without an input: there is nothing to close")
	}
	if err := in.reader.files.CloseStdin(in.ctx, in.sandboxID, in.execID); err != nil {
		return err
	}
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	in.notify(in.wake)
	return nil
}

// resize gives the terminal the size it was asked to have. What fails, such as that of a command that has not started, is
// tried again when there is a sign of life.
func (in *input) resize() {
	if in.size == nil {
		return
	}
	err := in.reader.files.ResizeExec(in.ctx, in.sandboxID, in.execID, uint16(in.size.Rows), uint16(in.size.Columns))
	if err == nil || errors.Is(err, runtime.ErrExecTerminal) {
		in.size = nil
	}
	in.mu.Lock()
	in.waiting = in.size != nil
	in.mu.Unlock()
}

// announce has the client told what was taken, if that is so much more than it knows of.
func (in *input) announce(more uint64) {
	if in.taken-in.announced >= more {
		in.announced = in.taken
		in.notify(in.wake)
	}
}

func (in *input) report() (taken uint64, closed bool, refusal error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.taken, in.closed, in.refusal
}

// sign tells of a sign of life of the command.
func (in *input) sign() {
	in.mu.Lock()
	waiting := in.waiting
	in.mu.Unlock()
	if waiting {
		in.notify(in.alive)
	}
}

func (in *input) notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // it has one to come back to
	}
}

// stop lets serve return, out of a write too: what that had written is counted.
func (in *input) stop() {
	in.mu.Lock()
	in.stopped = true
	stdin := in.stdin
	in.mu.Unlock()
	in.cancel()
	if stdin != nil {
		_ = stdin.Close()
	}
}
