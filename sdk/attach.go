package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

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

	sender chan struct{} // holds one token, for whoever sends
	done   chan struct{} // closed when the rest is final

	mu      sync.Mutex
	link    *attachLink
	changed chan struct{} // closed and made anew with every change of what follows, or of the link
	size    *agboxv1.TerminalSize
	closing bool // of the input
	closed  bool // the daemon has confirmed it
	last    Exec
	err     error
}

type output struct {
	to     io.Writer
	offset *uint64 // of the next byte; nil: from now on
}

// attachLink is one stream of an attachment's life.
type attachLink struct {
	stream *raw.AttachStream
	taken  uint64 // of the input that went by it
	over   bool   // nothing more comes
}

// maxInput is how much of the input one message holds.
const maxInput = 64 << 10

// AttachExec attaches to a command: one that runs, or one that has ended, whose output can be read. It returns once it is
// attached; what the command writes from then on is copied. Without WithOutput it is for input alone. The context's end is
// as Detach. It fails with ErrExecNotFound, or ErrUnavailable when the daemon does not run.
func (c *Client) AttachExec(ctx context.Context, execID string, opts ...AttachOption) (*Attachment, error) {
	a := &Attachment{client: c, exec: Exec{ID: execID}, sender: make(chan struct{}, 1), done: make(chan struct{}), changed: make(chan struct{})}
	for _, opt := range opts {
		opt(a)
	}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	status, err := a.attach()
	if err != nil {
		defer a.cancel(nil)
		if a.ctx.Err() != nil {
			err = context.Cause(a.ctx)
		}
		return nil, err
	}
	a.exec = execOf(status)
	a.last = a.exec
	a.sender <- struct{}{}
	go a.run()
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

func (o *output) next() uint64 {
	if o.offset == nil {
		return 0
	}
	return *o.offset
}

// Write puts p into the command's input, or types it at its terminal, and returns once it was taken: that it was read, is
// the command's to tell. It blocks while the command reads nothing, as long as it is paused, while the daemon is
// away, and, until the command ends, where it will not read any more. n is exact but for what is said at
// Attachment. It fails with ErrStdinNotOpen where the command was started without an input, io.ErrClosedPipe after
// CloseStdin or the command's end, and ErrDetached.
func (a *Attachment) Write(p []byte) (n int, err error) {
	if err := a.takesInput(); err != nil {
		return 0, err
	}
	if err := a.begin(); err != nil {
		return 0, err
	}
	defer a.finish()
	if a.closing {
		return 0, io.ErrClosedPipe
	}
	for n < len(p) {
		link, err := a.live()
		if err != nil {
			return n, err
		}
		n += a.pass(link, p[n:])
	}
	return n, nil
}

// CloseStdin ends the command's input for good, for all clients, once what is in it was read; at a terminal, end of file
// is typed. It returns when that is done. A second call does nothing more.
func (a *Attachment) CloseStdin() error {
	if err := a.takesInput(); err != nil {
		return err
	}
	if err := a.begin(); err != nil {
		return err
	}
	defer a.finish()
	a.mu.Lock()
	again := a.closing
	link := a.link
	a.closing = true
	a.mu.Unlock()
	if !again && link != nil {
		_ = link.stream.Send(closeStdin) // where this fails, the next stream begins with it
	}
	for {
		a.mu.Lock()
		closed, changed := a.closed, a.changed
		a.mu.Unlock()
		if closed {
			return nil
		}
		select {
		case <-changed:
		case <-a.done:
			if a.err == nil {
				return nil // the command has ended
			}
			return a.err
		}
	}
}

// Resize gives the command's terminal this size, in characters. It waits for a Write that blocks, and fails with
// ErrNoTerminal where there is none, with io.ErrClosedPipe once the command has ended, and as Write does.
func (a *Attachment) Resize(rows, columns uint16) error {
	if !a.exec.Terminal {
		return fmt.Errorf("%w: %s was started without", ErrNoTerminal, a.exec.ID)
	}
	if err := a.begin(); err != nil {
		return err
	}
	defer a.finish()
	size := &agboxv1.TerminalSize{Rows: uint32(rows), Columns: uint32(columns)}
	a.mu.Lock()
	a.size = size
	link := a.link
	a.mu.Unlock()
	if link != nil {
		_ = link.stream.Send(resize(size)) // where this fails, the next stream begins with it
	}
	return nil
}

var closeStdin = &agboxv1.AttachExecRequest{Message: &agboxv1.AttachExecRequest_CloseStdin{CloseStdin: true}}

func resize(size *agboxv1.TerminalSize) *agboxv1.AttachExecRequest {
	return &agboxv1.AttachExecRequest{Message: &agboxv1.AttachExecRequest_Resize{Resize: size}}
}

func (a *Attachment) takesInput() error {
	if !a.exec.Stdin && !a.exec.Terminal {
		return fmt.Errorf("%w: %s was started without", ErrStdinNotOpen, a.exec.ID)
	}
	return nil
}

// begin waits for who sends; finish must follow.
func (a *Attachment) begin() error {
	select {
	case <-a.sender:
		return nil
	case <-a.done:
		return a.over()
	}
}

func (a *Attachment) finish() { a.sender <- struct{}{} }

// over is why nothing can be sent any more.
func (a *Attachment) over() error {
	if a.err != nil {
		return a.err
	}
	return io.ErrClosedPipe
}

// live returns the present stream, once there is one.
func (a *Attachment) live() (*attachLink, error) {
	for {
		a.mu.Lock()
		link, changed := a.link, a.changed
		a.mu.Unlock()
		if link != nil {
			return link, nil
		}
		select {
		case <-changed:
		case <-a.done:
			return nil, a.over()
		}
	}
}

// pass sends data by one stream and returns how much of it was taken: all, or what there was when the stream ended.
func (a *Attachment) pass(link *attachLink, data []byte) int {
	a.mu.Lock()
	before := link.taken
	a.mu.Unlock()
	for rest := data; len(rest) > 0; {
		piece := rest[:min(len(rest), maxInput)]
		if link.stream.Send(&agboxv1.AttachExecRequest{Message: &agboxv1.AttachExecRequest_Stdin{Stdin: piece}}) != nil {
			break // the other direction tells why
		}
		rest = rest[len(piece):]
	}
	for {
		a.mu.Lock()
		taken, over, changed := int(link.taken-before), link.over, a.changed
		a.mu.Unlock()
		if over || taken == len(data) {
			return taken
		}
		<-changed
	}
}

// change does what others wait for.
func (a *Attachment) change(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do()
	close(a.changed)
	a.changed = make(chan struct{})
}

// run receives, from one stream after the other.
func (a *Attachment) run() {
	defer close(a.done)
	defer a.cancel(nil)
	for {
		link := a.link // it is set by this goroutine alone
		ended, err := a.receive(link)
		link.stream.Close()
		a.change(func() { link.over, a.link = true, nil })
		if ended != nil {
			a.last = execOf(ended)
			return
		}
		if err := a.reattach(err); err != nil {
			a.err = err
			return
		}
	}
}

// reattach returns nil when there is another stream, and otherwise why there will be none.
func (a *Attachment) reattach(err error) error {
	for pause := firstLogPause; ; pause = min(2*pause, lastLogPause) {
		switch {
		case a.ctx.Err() != nil:
			return context.Cause(a.ctx)
		case !errors.Is(err, io.EOF) && !errors.Is(err, ErrUnavailable) && !errors.Is(err, context.Canceled):
			return err
		}
		if a.client.broken != nil {
			a.client.broken(err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-a.ctx.Done():
			timer.Stop()
			return context.Cause(a.ctx)
		}
		if _, err = a.attach(); err == nil {
			return nil
		}
	}
}

// attach opens a stream where the last one ended, and makes it the present one. It returns the exec as it is.
func (a *Attachment) attach() (*agboxv1.ExecStatus, error) {
	stream, err := a.client.raw.AttachExec(a.ctx)
	if err != nil {
		return nil, err
	}
	status, err := a.open(stream)
	if err != nil {
		stream.Close()
	}
	return status, err
}

func (a *Attachment) open(stream *raw.AttachStream) (*agboxv1.ExecStatus, error) {
	silent := a.stdout.to == nil && a.stderr.to == nil
	// A failure to send is told by what is received.
	_ = stream.Send(&agboxv1.AttachExecRequest{Message: &agboxv1.AttachExecRequest_Start{Start: &agboxv1.AttachExecStart{
		ExecId: a.exec.ID, StdoutOffset: a.stdout.offset, StderrOffset: a.stderr.offset, NoOutput: silent}}})
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	status := first.GetAttached()
	link := &attachLink{stream: stream}
	for range outputs(silent, status.GetTty()) { // where each begins
		next, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if err := a.take(link, next); err != nil {
			return nil, err
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
	return status, nil
}

// publish makes link the present one if it knows the size and the end of the input that were asked for; it returns them.
func (a *Attachment) publish(link *attachLink, size **agboxv1.TerminalSize, closing *bool) (done bool) {
	a.change(func() {
		if done = *size == a.size && *closing == a.closing; done {
			a.link = link
		}
		*size, *closing = a.size, a.closing
	})
	return done
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

// receive returns how the exec ended, or what broke the stream.
func (a *Attachment) receive(link *attachLink) (*agboxv1.ExecStatus, error) {
	for {
		response, err := link.stream.Recv()
		if err != nil {
			return nil, err
		}
		if ended := response.GetEnded(); ended != nil {
			return ended, nil
		}
		if err := a.take(link, response); err != nil {
			return nil, err
		}
	}
}

func (a *Attachment) take(link *attachLink, response *agboxv1.AttachExecResponse) error {
	switch m := response.Message.(type) {
	case *agboxv1.AttachExecResponse_Stdout:
		return a.stdout.write(m.Stdout)
	case *agboxv1.AttachExecResponse_Stderr:
		return a.stderr.write(m.Stderr)
	case *agboxv1.AttachExecResponse_StdinTaken:
		a.change(func() { link.taken, a.closed = m.StdinTaken, a.closing })
	}
	return nil
}

func (o *output) write(chunk *agboxv1.ExecLogChunk) error {
	if data := chunk.GetData(); o.to != nil && len(data) > 0 {
		if _, err := o.to.Write(data); err != nil {
			return fmt.Errorf("sdk: cannot pass on output: %w", err)
		}
	}
	next := chunk.GetOffset() + uint64(len(chunk.GetData()))
	o.offset = &next
	return nil
}
