package link

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// CloseStdin has init let go of its end of the command's input, which ends once nobody else has it open for writing. It returns
// at once; the request is remembered and said again after a reconnect until the result arrives or Ack is called, so it may
// also come before the Exec that it is meant for. The only error is ErrClosed.
func (l *Link) CloseStdin(execID string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return ErrClosed
	}
	if c := l.calls[execID]; c != nil {
		c.closed = true
		c.poke()
		return nil
	}
	l.closes[execID] = struct{}{}
	if l.peer != nil {
		l.peer.send(&protocol.CloseStdin{ID: execID})
	}
	return nil
}

// Resize sets the size of the command's terminal, and waits for a connection and for init's answer; when the connection is lost
// it asks again on the next. Errors: ErrNoTerminal; ErrExecUnknown, also when the Exec did not reach init yet; ErrExecEnded;
// ErrClosed; ctx's own; a syscall.Errno when the kernel refused it.
func (l *Link) Resize(ctx context.Context, execID string, size protocol.Size) error {
	for sent := (*Peer)(nil); ; {
		p, err := l.await(ctx, sent, true)
		if err == nil {
			err = l.ask(p, func(token uint64) protocol.Message {
				return &protocol.Resize{Token: token, ID: execID, Size: size}
			}).result(ctx)
		}
		switch {
		case errors.Is(err, ErrSignalUnknown):
			sent = p
			continue
		case errors.Is(err, syscall.ENOTTY):
			err = ErrNoTerminal
		}
		if err != nil {
			return fmt.Errorf("resize of exec %s: %w", execID, err)
		}
		return nil
	}
}
