// Package links holds the daemon's ends of the ways into sandboxes: a socket that agbox-init connects to, or a relay that the
// engine carries. Only the first process of a sandbox's primary is let in.
package links

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/layout"
	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/relay"
	"github.com/agbox-dev/agbox/oplog"
)

// Config is what the daemon decides about the ways into sandboxes.
type Config struct {
	Layout layout.Layout
	// InitPath is the agbox-init binary on the host.
	InitPath string
	// Patience is how long an agbox-init for which something waits may be silent before that is told; 0 is link.Patience.
	Patience time.Duration
	// DiskHeadroom are the last bytes of the disk, which no output takes.
	DiskHeadroom uint64
}

// Links are those of all sandboxes.
type Links struct {
	engine *engine.Client
	config Config
	layout layout.Layout
	oplogs *oplog.Logs
	log    *slog.Logger

	mu   sync.Mutex
	open map[string]*Link
	// watcher hears of links that are lost, once there is one; until then they are in lost.
	watcher runtime.Watcher
	lost    map[string]string
	// removed are the sandboxes that get no link any more: whoever comes late would leave a directory behind.
	removed map[string]bool
}

// New returns the links of no sandbox yet. Close it after use.
func New(api *engine.Client, config Config, oplogs *oplog.Logs, log *slog.Logger) *Links {
	return &Links{engine: api, config: config, layout: config.Layout, oplogs: oplogs, log: log,
		open: map[string]*Link{}, lost: map[string]string{}, removed: map[string]bool{}}
}

// Link accepts the one process that Docker says is the container's first.
type Link struct {
	*link.Link
	relay   *relay.Relay  // nil where agbox-init connects by itself
	running chan struct{} // closed once the container was started
	once    sync.Once

	verifying chan struct{} // one token: whose peer is looked at; one at a time asks the engine
	bounded   process       // the first one whose terminals are bounded; of whoever verifies
	memory    memory

	mu    sync.Mutex
	first process // the container's, once known
}

// Found says which process is the container's first one, where that is known already.
func (l *Link) Found(pid int) {
	first, err := processOf(pid)
	if err != nil {
		return // it has ended
	}
	l.setFirst(first)
}

func (l *Link) setFirst(first process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first = first
}

func (l *Link) firstKnown() process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

// Started says that the container was started.
func (l *Link) Started() { l.once.Do(func() { close(l.running) }) }

// Relayed reports whether the engine carries what is said to the sandbox's agbox-init.
func (l *Link) Relayed() bool { return l.relay != nil }

// Thaw is for right after the container was unpaused, when the relay may be about to try again.
func (l *Link) Thaw() {
	l.Link.Thaw()
	if l.relay != nil {
		l.relay.Hurry()
	}
}

// Close ends the relay before what it is connected to.
func (l *Link) Close() error {
	if l.relay != nil {
		l.relay.Close()
	}
	defer l.memory.end()
	return l.Link.Close()
}

// Open returns the sandbox's link, opening it when need be.
func (ls *Links) Open(sandboxID string) (*Link, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.open[ls.engine.Place(sandboxID)]; l != nil {
		return l, nil
	}
	if ls.removed[ls.engine.Place(sandboxID)] {
		return nil, fmt.Errorf("%w: sandbox %s is removed", link.ErrClosed, sandboxID)
	}
	if err := ls.layout.Make(sandboxID); err != nil {
		return nil, fmt.Errorf("cannot make the sandbox's directories: %w", err)
	}
	l := &Link{running: make(chan struct{}), verifying: make(chan struct{}, 1)}
	verify := func(ctx context.Context, pid int) error { return ls.verify(ctx, l, sandboxID, pid) }
	lost := func(why string) {
		sandboxID := ls.engine.Tenant(ls.engine.Place(sandboxID)) // which may have taken the place since
		ls.oplogs.Note(sandboxID, "link", why)
		ls.log.Warn("the link to a sandbox is lost", "sandbox_id", sandboxID, "reason", why)
		ls.report(sandboxID, why)
	}
	place := ls.engine.Place(sandboxID)
	held := runtime.IsPlace(place) && !ls.layout.Marked(ls.engine.Tenant(place), layout.Booted)
	owner := link.Owner{Held: held, Verify: verify, Left: func() { l.memory.look() }, Lost: lost, Patience: ls.config.Patience}
	if ls.layout.Relayed(sandboxID) {
		l.Link = link.New(owner, ls.log)
		l.relay = relay.Start(ls.relayOf(sandboxID, l))
	} else {
		var err error
		if l.Link, err = link.Listen(ls.layout.Socket(sandboxID), owner, ls.log); err != nil {
			return nil, err
		}
	}
	ls.open[ls.engine.Place(sandboxID)] = l
	return l, nil
}

// Running returns the link of a sandbox whose primary was started.
func (ls *Links) Running(sandboxID string) (*Link, error) {
	l, err := ls.Open(sandboxID)
	if err == nil {
		l.Started()
	}
	return l, err
}

// Booted is Running for what is only asked of a sandbox whose agbox-init was booted, be it by an earlier daemon.
func (ls *Links) Booted(sandboxID string) (*Link, error) {
	l, err := ls.Running(sandboxID)
	if err == nil {
		l.ExpectBooted()
	}
	return l, err
}

// verify lets only the container's first process in, whoever else inside finds the socket. The engine is asked who that is
// once for each life of the container: as long as that process lives, another one is refused without asking.
func (ls *Links) verify(ctx context.Context, l *Link, sandboxID string, pid int) error {
	select {
	case <-l.running:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case l.verifying <- struct{}{}:
		defer func() { <-l.verifying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	first := l.firstKnown()
	if !first.alive() {
		found, err := ls.engine.InspectPrimary(ctx, sandboxID)
		if err != nil {
			return err
		}
		if found.State == nil || !found.State.Running {
			return fmt.Errorf("container %s is not running", engine.PrimaryName(sandboxID))
		}
		if first, err = processOf(found.State.Pid); err != nil {
			return err
		}
		l.setFirst(first)
	}
	if peer, err := processOf(pid); err != nil || peer != first {
		return fmt.Errorf("the first process of %s is %d", engine.PrimaryName(sandboxID), first.pid)
	}
	if l.bounded != first { // before anything but agbox-init runs there
		if err := boundTerminals(first.pid); err != nil && !errors.Is(err, os.ErrPermission) {
			ls.log.Warn("a sandbox may take all terminals that the host has", "sandbox_id", sandboxID, "error", err)
		}
		l.bounded = first
		l.memory.begin(counterOf(first.pid))
	}
	return nil
}

// Drop closes the sandbox's link, if there is one.
func (ls *Links) Drop(sandboxID string) {
	ls.mu.Lock()
	l := ls.open[ls.engine.Place(sandboxID)]
	delete(ls.open, ls.engine.Place(sandboxID))
	ls.mu.Unlock()
	if l == nil {
		return
	}
	if err := l.Close(); err != nil {
		ls.log.Warn("link to a sandbox did not close", "sandbox_id", sandboxID, "error", err)
	}
}

// report passes on that a link is lost.
func (ls *Links) report(sandboxID, why string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.watcher == nil {
		ls.lost[sandboxID] = why
		return
	}
	ls.watcher.LinkLost(sandboxID, why)
}

// Watch has the watcher hear of links that are lost, those of before included.
func (ls *Links) Watch(watcher runtime.Watcher) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.watcher = watcher
	for sandboxID, why := range ls.lost {
		watcher.LinkLost(sandboxID, why)
	}
	clear(ls.lost)
}

// Find returns the sandbox's link, nil when it is not open.
func (ls *Links) Find(sandboxID string) *Link {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.open[ls.engine.Place(sandboxID)]
}

// Retire says whether the sandbox's removal has begun.
func (ls *Links) Retire(sandboxID string, removed bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if removed {
		ls.removed[ls.engine.Place(sandboxID)] = true
	} else {
		delete(ls.removed, ls.engine.Place(sandboxID))
	}
}

// Retired reports whether the sandbox's removal has begun.
func (ls *Links) Retired(sandboxID string) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.removed[ls.engine.Place(sandboxID)]
}

// Close closes all of them.
func (ls *Links) Close() {
	ls.mu.Lock()
	all := ls.open
	ls.open = map[string]*Link{}
	ls.mu.Unlock()
	var closing sync.WaitGroup
	for _, link := range all { // a relay may take its time
		closing.Go(func() { link.Close() })
	}
	closing.Wait()
}
