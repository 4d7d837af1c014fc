package link

import (
	"context"
	"fmt"
	"syscall"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// Signal sends a signal (Linux numbers, 1 to 64; 0 only asks whether the process lives) to the exec's own
// process and to no other of its tree. With protocol.CommandID that is the main command, before it was
// handed over to the image's entrypoint. It waits for a connection and for init's answer: nil means that
// the signal was sent, once. Errors: ErrExecUnknown, also when the Exec did not reach init yet;
// ErrExecEnded; ErrSignalUnknown; ErrClosed; ctx's own, after which the signal may still be sent; a
// syscall.Errno when the kernel refused it (EINVAL: no such signal).
func (l *Link) Signal(ctx context.Context, execID string, signal int) error {
	p, err := l.await(ctx, nil, true)
	if err == nil {
		err = l.ask(p, func(token uint64) protocol.Message {
			return &protocol.Signal{Token: token, ID: execID, Signal: signal}
		}).result(ctx)
	}
	if err != nil {
		return fmt.Errorf("signal %d to exec %s: %w", signal, execID, err)
	}
	return nil
}

// question is what was asked of one connection and is answered by Signalled, once or never.
type question struct {
	peer   *Peer
	token  uint64
	answer chan *protocol.Signalled // room for one
}

// ask sends a question. Whoever gives it up before it is answered drops it.
func (l *Link) ask(p *Peer, what func(token uint64) protocol.Message) *question {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.token++
	q := &question{peer: p, token: p.token, answer: make(chan *protocol.Signalled, 1)}
	p.signals[q.token] = q.answer
	p.send(what(q.token))
	return q
}

func (q *question) drop() {
	q.peer.link.mu.Lock()
	defer q.peer.link.mu.Unlock()
	delete(q.peer.signals, q.token)
}

func (q *question) answered() bool {
	select {
	case <-q.answer:
		return true
	default:
		return false
	}
}

// result waits for the answer.
func (q *question) result(ctx context.Context) (err error) {
	select {
	case m := <-q.answer:
		return signalled(m)
	case <-ctx.Done():
		err = ctx.Err()
	case <-q.peer.done:
		err = ErrSignalUnknown
	}
	q.drop()
	select {
	case m := <-q.answer: // it came at the same moment
		return signalled(m)
	default:
		return err
	}
}

func signalled(m *protocol.Signalled) error {
	switch m.Outcome {
	case protocol.SignalSent:
		return nil
	case protocol.SignalExecUnknown:
		return ErrExecUnknown
	case protocol.SignalExecEnded:
		return ErrExecEnded
	}
	return syscall.Errno(m.Errno)
}
