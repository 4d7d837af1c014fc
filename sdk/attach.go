package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
)

// AttachOption changes what AttachExec carries.
type AttachOption func(*Attachment)

// WithOutput has what the command writes copied: its stdout, or all that it writes to its terminal, and its stderr. nil
// leaves one out. Both are used by one goroutine; while it is blocked, no input is confirmed either.
func WithOutput(stdout, stderr io.Writer) AttachOption {
	return func(a *Attachment) { a.stdout.to, a.stderr.to = stdout, stderr }
}

// WithOutputFrom begins the output at these bytes of the two log files; without it, it is what comes from now on.
func WithOutputFrom(stdout, stderr uint64) AttachOption {
	return func(a *Attachment) { a.stdout.offset, a.stderr.offset = &stdout, &stderr }
}

// Attachment is one client's hold of a command's input and output. Any number can be on one command at once. Its methods
// may be called from any goroutine. Wait or Detach must follow.
//
// It goes on over restarts of the daemon, at the bytes of output and input that it had come to. Of output nothing is lost
// and nothing comes twice. Of input neither, when the daemon was ended in order; when it was killed, up to 1 MiB that it
// had passed on and not yet confirmed is sent again, since nobody knows of it. What another client sent in between is in
// between.
type Attachment struct {
	client *Client
	exec   Exec // as it was at first
	ctx    context.Context
	cancel context.CancelCauseFunc
	stdout output
	stderr output
	remote bool // the daemon's files cannot be read here

	attached chan struct{} // closed when there is the first stream
	sender   chan struct{} // holds one token, for whoever sends
	done     chan struct{} // closed when the rest is final

	mu      sync.Mutex
	link    *attachLink
	changed chan struct{} // closed and made anew with every change of what follows, or of the link
	size    *agboxv1.TerminalSize
	closing bool // of the input
	closed  bool // the daemon has confirmed it
	last    Exec
	err     error
}

// attachLink is one stream of an attachment's life.
type attachLink struct {
	stream *raw.AttachStream
	taken  uint64 // of the input that went by it
	over   bool   // nothing more comes
}

// AttachExec attaches to a command: one that runs, or one that has ended, whose output can be read. It returns once it is
// attached; what the command writes from then on is copied. Without WithOutput it is for input alone. The context's end is
// as Detach. It fails with ErrExecNotFound, or ErrUnavailable when the daemon does not run.
func (c *Client) AttachExec(ctx context.Context, execID string, opts ...AttachOption) (*Attachment, error) {
	a := &Attachment{client: c, remote: c.raw.Remote(), exec: Exec{ID: execID}, attached: make(chan struct{}), sender: make(chan struct{}, 1),
		done: make(chan struct{}), changed: make(chan struct{})}
	for _, opt := range opts {
		opt(a)
	}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	a.sender <- struct{}{}
	go a.run()
	select {
	case <-a.attached:
		return a, nil
	case <-a.done:
	}
	if a.last.ID == "" {
		return nil, a.err
	}
	return a, nil
}

// Exec returns the command as it was when AttachExec returned.
func (a *Attachment) Exec() Exec { return a.exec }

// Wait returns the exec as it ended, once it has ended and all its output is copied, beside Err's error. ErrDetached, the
// cause of the context's end, and the error of a writer end it before.
func (a *Attachment) Wait() (Exec, error) {
	<-a.done
	if a.err != nil {
		return a.last, a.err
	}
	return a.last, a.last.Err()
}

// Detach ends the attachment and nothing else. It returns once no writer is in use any more, and may be called more than
// once, also after the end. A Write that it interrupts tells how much was taken as far as it was confirmed.
func (a *Attachment) Detach() {
	a.cancel(ErrDetached)
	<-a.done
}

// Offsets returns the bytes of output that were copied last, for WithOutputFrom. It is for after Wait or Detach.
func (a *Attachment) Offsets() (stdout, stderr uint64) {
	<-a.done
	return a.stdout.next(), a.stderr.next()
}

// FollowLogs copies the output of an exec to the writers, from its beginning and while it grows, and returns the exec as it
// ended once it has ended and all output is copied; beside Err's error if it failed or was cancelled. It may begin at any
// time, also after the end and while the daemon restarts. One goroutine uses both writers; the first error of one ends it
// all. The context's end does too, but leaves the exec running.
func (c *Client) FollowLogs(ctx context.Context, exec Exec, stdout, stderr io.Writer) (Exec, error) {
	var a *Attachment
	err := c.raw.Await(ctx, func() (err error) {
		a, err = c.AttachExec(ctx, exec.ID, WithOutput(stdout, stderr), WithOutputFrom(0, 0))
		return err
	})
	if err != nil {
		return exec, err
	}
	return a.Wait()
}

// run receives, from one stream after the other.
func (a *Attachment) run() {
	defer close(a.done)
	defer a.cancel(nil)
	defer a.stdout.close()
	defer a.stderr.close()
	a.err = a.client.raw.Resume(a.ctx, func(met func()) error {
		err := a.receive(met)
		if errors.Is(err, errNotHere) {
			a.remote = true
			err = a.receive(met)
		}
		return err
	})
	if refused, ok := a.err.(*refusedOutput); ok {
		a.err = fmt.Errorf("sdk: cannot pass on output: %w", refused.cause)
	}
}

// receive has one stream from its beginning to its end.
func (a *Attachment) receive(met func()) error {
	stream, err := a.client.raw.AttachExec(a.ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	link := &attachLink{stream: stream}
	defer a.change(func() { link.over, a.link = true, nil })
	if err := a.open(link, met); err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		if ended := response.GetEnded(); ended != nil {
			a.last = execOf(ended)
			return nil
		}
		if err := a.take(link, response); err != nil {
			return err
		}
	}
}

// open goes on where the last stream ended, and makes this one the present.
func (a *Attachment) open(link *attachLink, met func()) error {
	stream, silent := link.stream, a.stdout.to == nil && a.stderr.to == nil
	// A failure to send is told by what is received.
	_ = stream.Send(&agboxv1.AttachExecRequest{Message: &agboxv1.AttachExecRequest_Start{Start: &agboxv1.AttachExecStart{
		ExecId: a.exec.ID, StdoutOffset: a.stdout.offset, StderrOffset: a.stderr.offset, NoOutput: silent,
		OffsetsOnly: !a.remote}}})
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	status := first.GetAttached()
	a.stdout.path, a.stderr.path = status.GetStdoutLogPath(), status.GetStderrLogPath()
	for range outputs(silent, status.GetTty()) { // where each begins
		next, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := a.take(link, next); err != nil {
			return err
		}
	}
	for size, closing := (*agboxv1.TerminalSize)(nil), false; !a.publish(link, &size, &closing); {
		if size != nil {
			_ = stream.Send(resize(size))
		}
		if closing {
			_ = stream.Send(closeStdin)
		}
	}
	if met(); a.last.ID == "" {
		a.exec = execOf(status)
		a.last = a.exec
		close(a.attached)
	}
	return nil
}

func outputs(silent, terminal bool) int {
	switch {
	case silent:
		return 0
	case terminal:
		return 1
	}
	return 2
}

func (a *Attachment) take(link *attachLink, response *agboxv1.AttachExecResponse) error {
	switch m := response.Message.(type) {
	case *agboxv1.AttachExecResponse_Stdout:
		return a.stdout.write(a.ctx, m.Stdout)
	case *agboxv1.AttachExecResponse_Stderr:
		return a.stderr.write(a.ctx, m.Stderr)
	case *agboxv1.AttachExecResponse_StdinTaken:
		a.change(func() { link.taken, a.closed = m.StdinTaken, a.closing })
	}
	return nil
}
