package dockerrt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/relay"
)

// links are the daemon's ends of the sockets that the sandboxes' agbox-inits connect to.
type links struct {
	mu   sync.Mutex
	open map[string]*sandboxLink
	// watcher hears of links that are lost, once there is one; until then they are in lost.
	watcher runtime.Watcher
	lost    map[string]string
	// removed are the sandboxes that get no link any more: whoever comes late would leave a directory behind.
	removed map[string]bool
}

// sandboxLink accepts the one process that Docker says is the container's first.
type sandboxLink struct {
	*link.Link
	relay   *relay.Relay  // nil where agbox-init connects by itself
	running chan struct{} // closed once the container was started
	once    sync.Once

	verifying chan struct{} // one token: whose peer is looked at; one at a time asks the engine
	bounded   process       // the first one whose terminals are bounded; of whoever verifies

	mu    sync.Mutex
	first process // the container's, once known
}

// found says which process is the container's first one, where that is known already.
func (l *sandboxLink) found(pid int) {
	first, err := processOf(pid)
	if err != nil {
		return // it has ended
	}
	l.setFirst(first)
}

func (l *sandboxLink) setFirst(first process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first = first
}

func (l *sandboxLink) firstKnown() process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

func (l *sandboxLink) started() { l.once.Do(func() { close(l.running) }) }

// Thaw is for right after the container was unpaused, when the relay may be about to try again.
func (l *sandboxLink) Thaw() {
	l.Link.Thaw()
	if l.relay != nil {
		l.relay.Hurry()
	}
}

// Close ends the relay before what it is connected to.
func (l *sandboxLink) Close() error {
	if l.relay != nil {
		l.relay.Close()
	}
	return l.Link.Close()
}

// link returns the sandbox's link, opening it when need be.
func (d *Docker) link(sandboxID string) (*sandboxLink, error) {
	d.links.mu.Lock()
	defer d.links.mu.Unlock()
	if l := d.links.open[sandboxID]; l != nil {
		return l, nil
	}
	if d.links.removed[sandboxID] {
		return nil, fmt.Errorf("%w: sandbox %s is removed", link.ErrClosed, sandboxID)
	}
	if err := d.layout.make(sandboxID); err != nil {
		return nil, fmt.Errorf("cannot make the sandbox's directories: %w", err)
	}
	l := &sandboxLink{running: make(chan struct{}), verifying: make(chan struct{}, 1)}
	verify := func(ctx context.Context, pid int) error { return d.verify(ctx, l, sandboxID, pid) }
	lost := func(why string) {
		d.oplogs.Note(sandboxID, "link", why)
		d.log.Warn("the link to a sandbox is lost", "sandbox_id", sandboxID, "reason", why)
		d.links.report(sandboxID, why)
	}
	owner := link.Owner{Verify: verify, Lost: lost, Patience: d.config.LinkPatience}
	if d.layout.relayed(sandboxID) {
		l.Link = link.New(owner, d.log)
		l.relay = relay.Start(d.relayOf(sandboxID, l))
	} else {
		var err error
		if l.Link, err = link.Listen(d.layout.socket(sandboxID), owner, d.log); err != nil {
			return nil, err
		}
	}
	d.links.open[sandboxID] = l
	return l, nil
}

// running returns the link of a sandbox whose primary was started.
func (d *Docker) running(sandboxID string) (*sandboxLink, error) {
	l, err := d.link(sandboxID)
	if err == nil {
		l.started()
	}
	return l, err
}

// booted is running for what is only asked of a sandbox whose agbox-init was booted, be it by an earlier daemon.
func (d *Docker) booted(sandboxID string) (*sandboxLink, error) {
	l, err := d.running(sandboxID)
	if err == nil {
		l.ExpectBooted()
	}
	return l, err
}

// verify lets only the container's first process in, whoever else inside finds the socket. The engine is asked who that is
// once for each life of the container: as long as that process lives, another one is refused without asking.
func (d *Docker) verify(ctx context.Context, l *sandboxLink, sandboxID string, pid int) error {
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
		found, err := d.api.InspectPrimary(ctx, sandboxID)
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
			d.log.Warn("a sandbox may take all terminals that the host has", "sandbox_id", sandboxID, "error", err)
		}
		l.bounded = first
	}
	return nil
}

// unlink closes the sandbox's link, if there is one.
func (d *Docker) unlink(sandboxID string) {
	d.links.mu.Lock()
	l := d.links.open[sandboxID]
	delete(d.links.open, sandboxID)
	d.links.mu.Unlock()
	if l == nil {
		return
	}
	if err := l.Close(); err != nil {
		d.log.Warn("link to a sandbox did not close", "sandbox_id", sandboxID, "error", err)
	}
}

// report passes on that a link is lost.
func (l *links) report(sandboxID, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watcher == nil {
		l.lost[sandboxID] = why
		return
	}
	l.watcher.LinkLost(sandboxID, why)
}

// watch has the watcher hear of links that are lost, those of before included.
func (l *links) watch(watcher runtime.Watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watcher = watcher
	for sandboxID, why := range l.lost {
		watcher.LinkLost(sandboxID, why)
	}
	clear(l.lost)
}

// find returns the sandbox's link, nil when it is not open.
func (l *links) find(sandboxID string) *sandboxLink {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[sandboxID]
}

// retire says whether the sandbox's removal has begun.
func (l *links) retire(sandboxID string, removed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if removed {
		l.removed[sandboxID] = true
	} else {
		delete(l.removed, sandboxID)
	}
}

func (l *links) closeAll() {
	l.mu.Lock()
	all := l.open
	l.open = map[string]*sandboxLink{}
	l.mu.Unlock()
	var closing sync.WaitGroup
	for _, link := range all { // a relay may take its time
		closing.Go(func() { link.Close() })
	}
	closing.Wait()
}
