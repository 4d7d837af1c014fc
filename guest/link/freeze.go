package link

import (
	"context"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// Freeze has init's clocks of timeouts, graces and Stop stand still until Thaw. It returns nil once init has
// confirmed that: from then on the container may be paused for any time, and nothing expires. It waits for
// a connection if there is none. What is asked for outlives the call, also one that ends with ctx's error, and is said
// again on each new connection; whoever gives the pause up calls Thaw. Calling it twice changes nothing.
// Errors: ctx's own, ErrThawed, ErrClosed.
func (l *Link) Freeze(ctx context.Context) error {
	l.setFrozen(true)
	for {
		l.mu.Lock()
		wanted, p, changed := l.frozen, l.peer, l.changed
		confirmed := p != nil && p.frozen && p.unconfirmed == 0
		l.mu.Unlock()
		switch {
		case l.ctx.Err() != nil:
			return ErrClosed
		case !wanted:
			return ErrThawed
		case confirmed:
			return nil
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// AssumeFrozen is Freeze for an init that confirmed one to an earlier daemon and whose container is paused since: it is not
// there to confirm it again, and is not waited for.
func (l *Link) AssumeFrozen() { l.setFrozen(true) }

// Disconnected reports whether init is not connected now.
func (l *Link) Disconnected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peer == nil
}

// Thaw lets the clocks go on where they stopped; without a Freeze it does nothing. It returns at once and is
// meant for right after the container was unpaused. An init that connects and says that its clocks stand still is told Thaw
// unless Freeze was called on this Link, so a daemon that starts anew with a sandbox that is meant to be paused calls Freeze.
func (l *Link) Thaw() { l.setFrozen(false) }

func (l *Link) setFrozen(frozen bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = frozen
	if l.peer != nil && l.peer.frozen != frozen {
		l.sayFrozen()
	}
	l.notify()
	l.stirred()
}

// sayFrozen tells the connected init what is asked for; l.mu is held.
func (l *Link) sayFrozen() {
	p := l.peer
	p.frozen = l.frozen
	if p.frozen {
		p.unconfirmed++
		p.send(&protocol.Freeze{})
	} else {
		p.send(&protocol.Thaw{})
	}
}
