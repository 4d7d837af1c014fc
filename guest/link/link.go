// Package link is the daemon's end of the conversation with agbox-init, PID 1 of a sandbox;
// package protocol tells what is said.
//
// Init connects, loses the connection and connects again as it likes; the calls of a Link wait
// through that. What a call asked for is said again on a new connection where init may not have
// heard it.
package link

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agbox-dev/agbox/guest/protocol"
)

const (
	// maxUnverified connections are looked at concurrently; more wait in the socket's backlog.
	maxUnverified = 16
	helloTimeout  = 5 * time.Second
)

// Link is the daemon's end for one sandbox: a listener on a Unix socket that at most one verified
// init is connected to. All methods may be called concurrently.
type Link struct {
	path     string
	verify   func(ctx context.Context, pid int) error
	left     func()
	lost     func(why string)
	patience time.Duration
	log      *slog.Logger
	listener *net.UnixListener // nil for none
	ctx      context.Context   // ends with Close
	cancel   context.CancelFunc
	tasks    sync.WaitGroup

	mu      sync.Mutex
	peer    *Peer         // nil while init is not connected
	changed chan struct{} // closed and replaced whenever peer or what is said of freezing changes
	calls   map[string]*call
	cancels map[string]time.Duration // of ids without a call
	closes  map[string]struct{}      // inputs, of ids without a call
	acks    map[string]struct{}      // said while init was not connected
	frozen  bool                     // Freeze was called, and no Thaw since
	booted  bool                     // a life of init is known that was booted
	held    bool                     // nothing goes to init before it is booted
	waiting int                      // requests beside calls

	watching bool
	isLost   atomic.Bool
	stir     chan struct{} // one token: watch has something to do
}

// Owner is whom a Link works for. Its functions may be called by several goroutines at once.
type Owner struct {
	// Verify is called once for each connection with the pid of the peer as seen from here; the connection is used only if
	// it returns nil. It may block until its context ends, which is when the link is closed.
	Verify func(ctx context.Context, pid int) error
	// Left is called when a connection by the socket has ended, at once. May be nil.
	Left func()
	// Lost is called when something waits for init, or init was connected, and it has been gone or silent for the
	// patience, once until it is back; and when init turns out to be of another life of the container. Why is for a
	// person. It must not block. May be nil.
	Lost func(why string)
	// Held: init was made ahead, and nothing but Boot is said to it before it is booted.
	Held bool
	// Patience 0 is the default one.
	Patience time.Duration
}

// Listen creates the socket, mode 0666, in place of a stale one; its directory must exist and keep
// strangers out.
func Listen(socketPath string, owner Owner, log *slog.Logger) (*Link, error) {
	listener, err := listen(socketPath)
	if err != nil {
		return nil, fmt.Errorf("link: listen on %s: %w", socketPath, err)
	}
	l := New(owner, log)
	l.path, l.listener = socketPath, listener
	l.tasks.Go(l.accept)
	return l, nil
}

// New makes a link that init gets to by Join only.
func New(owner Owner, log *slog.Logger) *Link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Link{
		held: owner.Held, verify: owner.Verify, left: owner.Left, lost: owner.Lost, patience: cmp.Or(owner.Patience, Patience),
		log: log, ctx: ctx, cancel: cancel,
		changed: make(chan struct{}), stir: make(chan struct{}, 1),
		calls: map[string]*call{}, cancels: map[string]time.Duration{}, acks: map[string]struct{}{},
		closes: map[string]struct{}{},
	}
	if l.lost == nil {
		l.lost = func(string) {}
	}
	l.tasks.Go(l.watch)
	return l
}

// Close ends the link and removes the socket; what runs in the sandbox goes on. All waiting calls
// return ErrClosed. On return no goroutine of the link is left.
func (l *Link) Close() error {
	l.cancel()
	var err error
	if l.listener != nil {
		err = l.listener.Close()
	}
	l.mu.Lock()
	if l.peer != nil {
		l.peer.queue.Close()
	}
	l.mu.Unlock()
	l.tasks.Wait()
	if l.listener == nil {
		return nil
	}
	return removeSocket(l.path, err)
}

// Connected waits until a verified init has said hello.
func (l *Link) Connected(ctx context.Context) error {
	_, err := l.await(ctx, nil, false)
	return err
}

// await returns the live peer as soon as there is one other than the given; with booted, one that serves what comes after
// Boot.
func (l *Link) await(ctx context.Context, other *Peer, booted bool) (*Peer, error) {
	l.mu.Lock()
	l.waiting++
	l.stirred()
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.waiting--
		l.mu.Unlock()
	}()
	for {
		l.mu.Lock()
		p, changed, serves := l.peer, l.changed, l.serves(l.peer)
		l.mu.Unlock()
		if l.ctx.Err() != nil {
			return nil, ErrClosed
		}
		if p != nil && p != other && (serves || !booted) {
			return p, nil
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *Link) accept() {
	slots := make(chan struct{}, maxUnverified)
	var strangers throttle
	for {
		select {
		case slots <- struct{}{}:
		case <-l.ctx.Done():
			return
		}
		conn, err := l.listener.AcceptUnix()
		if l.ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return
		}
		if err != nil { // out of descriptors: the connection stays in the backlog
			l.log.Warn("accept of a sandbox's init failed", "socket", l.path, "error", err)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-l.ctx.Done():
			}
			<-slots
			continue
		}
		if wait := strangers.wait(time.Now()); wait > 0 {
			select {
			case <-time.After(wait):
			case <-l.ctx.Done():
			}
		}
		l.tasks.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(l.ctx, func() { conn.Close() })()
			c := &socket{conn: conn}
			hello, err := l.greet(c)
			<-slots
			if err == nil {
				err = l.serve(c, hello)
			}
			l.log.Debug("connection to a sandbox's socket ended", "socket", l.path, "error", err)
		})
	}
}

// greet verifies a new connection and reads its hello.
func (l *Link) greet(c *socket) (*protocol.Hello, error) {
	pid, err := peerPID(c.conn)
	if err != nil {
		return nil, err
	}
	if err := l.verify(l.ctx, pid); err != nil {
		return nil, fmt.Errorf("pid %d: %w", pid, err)
	}
	c.conn.SetReadDeadline(time.Now().Add(helloTimeout))
	m, fds, err := c.receive()
	closeAll(fds)
	if err != nil {
		return nil, fmt.Errorf("pid %d: no hello: %w", pid, err)
	}
	hello, ok := m.(*protocol.Hello)
	if !ok {
		return nil, fmt.Errorf("pid %d: does not say hello", pid)
	}
	return hello, c.conn.SetReadDeadline(time.Time{})
}

// serve returns when the connection has ended or a newer one has taken its place.
func (l *Link) serve(c *socket, hello *protocol.Hello) error {
	p, err := l.Join(c, hello)
	if err != nil {
		return err
	}
	defer p.Leave()
	for {
		m, fds, err := c.receive()
		if err != nil {
			if l.left != nil {
				l.left()
			}
			return err
		}
		p.Take(m, fds...)
	}
}

// Join makes who speaks by the transport, and has said hello, the connected init, in place of another one. What it says goes to
// Take of the Peer, and Leave has to follow. The transport is closed in any case.
func (l *Link) Join(t Transport, hello *protocol.Hello) (*Peer, error) {
	p, err := l.newPeer(t, hello)
	if err != nil {
		return nil, err
	}
	l.tasks.Go(func() {
		defer close(p.written)
		p.queue.Run()
	})
	if l.install(p) {
		l.lost(reborn)
	}
	return p, nil
}

// Leave is for the end of the connection. On return nothing is sent any more.
func (p *Peer) Leave() {
	p.queue.Close()
	p.link.mu.Lock()
	if p.link.peer == p {
		p.link.setPeer(nil)
	}
	p.link.mu.Unlock()
	<-p.written
}

// install also says what was asked for while nobody was connected, except what waiting calls say. It reports whether p is of
// another life than the one that was booted.
func (l *Link) install(p *Peer) (another bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peer != nil {
		l.peer.queue.Close()
	}
	if l.ctx.Err() != nil {
		p.queue.Close()
	}
	l.booted = l.booted || p.booted
	l.setPeer(p)
	for id := range l.acks {
		if _, known := p.known[id]; known {
			p.send(&protocol.Ack{ID: id})
		}
	}
	clear(l.acks)
	for id, grace := range l.cancels {
		if p.known[id] != 0 && l.calls[id] == nil {
			p.send(&protocol.Cancel{ID: id, Grace: grace})
		}
	}
	for id := range l.closes {
		if p.known[id] != 0 && l.calls[id] == nil {
			p.send(&protocol.CloseStdin{ID: id})
		}
	}
	if p.frozen != l.frozen {
		l.sayFrozen()
	}
	return l.rebornLocked()
}

func (l *Link) setPeer(p *Peer) {
	l.peer = p
	l.notify()
	l.stirred()
}

func (l *Link) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Take is for what init says, in its order, with the descriptors that came with it, which are taken over.
func (p *Peer) Take(m protocol.Message, fds ...int) {
	defer func() { closeAll(fds) }()
	l := p.link
	l.mu.Lock()
	defer l.mu.Unlock()
	switch m := m.(type) {
	case *protocol.Booted:
		p.setBoot(m.Status)
	case *protocol.Started:
		if c := l.calls[m.ID]; c != nil {
			c.pid = m.PID
			c.poke()
		}
	case *protocol.Result:
		delete(l.cancels, m.ID)
		delete(l.closes, m.ID)
		if c := l.calls[m.ID]; c != nil {
			c.result = m
			c.poke()
		} else if strings.HasPrefix(m.ID, protocol.InsidePrefix) {
			p.send(&protocol.Ack{ID: m.ID})
		}
	case *protocol.Signalled:
		if answer := p.signals[m.Token]; answer != nil {
			delete(p.signals, m.Token)
			answer <- m
		}
	case *protocol.Dialed:
		if answer := p.dials[m.Token]; answer != nil {
			delete(p.dials, m.Token)
			answer <- dialed{m.Errno, fds}
			fds = nil
		}
	case *protocol.Frozen:
		p.unconfirmed = max(p.unconfirmed-1, 0)
		l.notify()
	}
}
