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
	if err != nil {
		return err
	}
	answer := make(chan *initproto.Signalled, 1)
	l.mu.Lock()
	p.token++
	token := p.token
	p.signals[token] = answer
	p.send(&initproto.Signal{Token: token, ID: execID, Signal: signal})
	l.mu.Unlock()
	select {
	case m := <-answer:
		return signalled(m, execID, signal)
	case <-ctx.Done():
		err = ctx.Err()
	case <-p.done:
		err = fmt.Errorf("signal %d to exec %s: %w", signal, execID, ErrSignalUnknown)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(p.signals, token)
	select {
	case m := <-answer: // it came at the same moment
		return signalled(m, execID, signal)
	default:
		return err
	}
}

func signalled(m *initproto.Signalled, execID string, signal int) error {
	var err error
	switch m.Outcome {
	case initproto.SignalSent:
		return nil
	case initproto.SignalExecUnknown:
		err = ErrExecUnknown
	case initproto.SignalExecEnded:
		err = ErrExecEnded
	default:
		err = syscall.Errno(m.Errno)
	}
	return fmt.Errorf("signal %d to exec %s: %w", signal, execID, err)
}
