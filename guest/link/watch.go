package link

import (
	"context"
	"time"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// Patience is the default one: how long an init for which something waits may be gone, or silent, before that is told: its own
// attempts to connect come every 50 ms, and an answer takes a millisecond.
const Patience = 10 * time.Second

// looks is how often within the patience the connection is looked at. A daemon that was itself stopped for long finds all
// of its timers due at once, and counts that as one look.
const looks = 4

// watch looks after the connection while something waits for init: it asks whether init answers, gives up a connection
// that is silent, and says so. It does nothing while nothing waits and init is connected.
func (l *Link) watch() {
	for l.untilWatched() {
		var q *question
		for missed, reported := 0, false; ; {
			select {
			case <-time.After(l.patience / looks):
			case <-l.ctx.Done():
				return
			}
			p, watched := l.watched()
			if !watched {
				break
			}
			switch {
			case p == nil:
				missed++
			case q == nil || q.peer != p:
				q = l.ask(p, isThere)
			case q.answered():
				missed, reported = 0, false
				l.isLost.Store(false)
				q = l.ask(p, isThere)
			default:
				missed++
			}
			if missed < looks {
				continue
			}
			if missed = 0; p != nil {
				p.queue.Close()
			}
			if !reported {
				reported = true
				l.isLost.Store(true)
				l.lost("agbox-init has not answered for " + l.patience.String())
			}
		}
		if q != nil {
			q.drop()
		}
	}
}

// isThere asks for what only an init that is at work can answer.
func isThere(token uint64) protocol.Message {
	return &protocol.Signal{Token: token, ID: "-"}
}

// Ping returns nil once init, which was booted, has answered. It waits for a connection. Errors: ErrClosed; ctx's own.
func (l *Link) Ping(ctx context.Context) error {
	for gone := (*Peer)(nil); ; {
		p, err := l.await(ctx, gone, true)
		if err != nil {
			return err
		}
		q := l.ask(p, isThere)
		select {
		case <-q.answer:
			l.isLost.Store(false)
			return nil
		case <-p.done:
			gone = p
		case <-ctx.Done():
			q.drop()
			return ctx.Err()
		}
	}
}

// watched returns the connection that calls can use, nil for none, and whether it is to be looked after.
func (l *Link) watched() (p *Peer, watched bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.serves(l.peer) {
		p = l.peer
	}
	l.watching = l.wanted()
	return p, l.watching
}

// wanted reports whether somebody misses init if it is gone; l.mu is held.
func (l *Link) wanted() bool {
	return !l.frozen && (len(l.calls) > 0 || l.waiting > 0 || l.booted && l.peer == nil)
}

// untilWatched returns false when the link is closed.
func (l *Link) untilWatched() bool {
	for {
		if _, watched := l.watched(); watched {
			return true
		}
		select {
		case <-l.stir:
		case <-l.ctx.Done():
			return false
		}
	}
}

// stirred wakes watch when there is something for it to do; l.mu is held.
func (l *Link) stirred() {
	if l.watching || !l.wanted() {
		return
	}
	select {
	case l.stir <- struct{}{}:
	default:
	}
}

// Lost reports whether init was reported as gone or silent, and has not been heard since.
func (l *Link) Lost() bool { return l.isLost.Load() }

// serves reports whether p can be used for what comes after Boot: the init of a container that was started again by
// somebody else knows nothing of what ran before; l.mu is held.
func (l *Link) serves(p *Peer) bool {
	return p != nil && (p.booted || p.booting || !l.booted && !l.held)
}

// ExpectBooted says that init was booted by an earlier daemon. One that was not is of another life of the container then,
// which is told as a loss, and is used for nothing but Stop.
func (l *Link) ExpectBooted() {
	l.mu.Lock()
	l.booted = l.booted || !l.held
	l.stirred()
	another := l.rebornLocked()
	l.mu.Unlock()
	if another {
		l.lost(reborn)
	}
}

const reborn = "the container was started again by somebody else: what ran in it has ended"

// Reborn reports whether the connected init is of another life of the container than the one that was booted.
func (l *Link) Reborn() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peer != nil && !l.held && !l.serves(l.peer)
}

// rebornLocked reports that once for each connection; l.mu is held.
func (l *Link) rebornLocked() bool {
	if l.peer == nil || l.held || l.serves(l.peer) || l.peer.reported {
		return false
	}
	l.peer.reported = true
	return true
}
