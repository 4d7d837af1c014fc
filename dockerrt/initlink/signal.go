package initlink

import (
	"context"
	"fmt"
	"syscall"

	"github.com/agbox-dev/agbox/dockerrt/initproto"
)

// Signal sends a signal (Linux numbers, 1 to 64; 0 only asks whether the process lives) to the exec's own
// process and to no other of its tree. With initproto.CommandID that is the main command, before it was
// handed over to the image's entrypoint. It waits for a connection and for init's answer: nil means that
// the signal was sent, once; an init of an earlier release never answers. Errors: ErrExecUnknown, also when the Exec did not reach init yet;
// ErrExecEnded; ErrSignalUnknown; ErrClosed; ctx's own, after which the signal may still be sent; a
// syscall.Errno when the kernel refused it (EINVAL: no such signal).
func (l *Link) Signal(ctx context.Context, execID string, signal int) error {
	p, err := l.await(ctx, nil)
	if err == nil {
		err = l.ask(ctx, p, func(token uint64) initproto.Message {
			return &initproto.Signal{Token: token, ID: execID, Signal: signal}
		})
	}
	if err != nil {
		return fmt.Errorf("signal %d to exec %s: %w", signal, execID, err)
	}
	return nil
}

// ask sends what is answered by Signalled, once.
func (l *Link) ask(ctx context.Context, p *peer, question func(token uint64) initproto.Message) error {
	answer := make(chan *initproto.Signalled, 1)
	l.mu.Lock()
	p.token++
	token := p.token
	var err error
	p.signals[token] = answer
	p.send(question(token))
	l.mu.Unlock()
	select {
	case m := <-answer:
		return signalled(m)
	case <-ctx.Done():
		err = ctx.Err()
	case <-p.done:
		err = ErrSignalUnknown
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(p.signals, token)
	select {
	case m := <-answer: // it came at the same moment
		return signalled(m)
	default:
		return err
	}
}

func signalled(m *initproto.Signalled) error {
	switch m.Outcome {
	case initproto.SignalSent:
		return nil
	case initproto.SignalExecUnknown:
		return ErrExecUnknown
	case initproto.SignalExecEnded:
		return ErrExecEnded
	}
	return syscall.Errno(m.Errno)
}
