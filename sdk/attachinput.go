package sdk

import (
	"fmt"
	"io"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// maxInput is how much of the input one message holds.
const maxInput = 64 << 10

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
