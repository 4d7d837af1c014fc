package dockerrt

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/agbox-dev/agbox/dockerrt/initlink"
)

// links are the daemon's ends of the sockets that the sandboxes' agbox-inits connect to.
type links struct {
	mu   sync.Mutex
	open map[string]*sandboxLink
	// removed are the sandboxes that get no link any more: whoever comes late would leave a directory behind.
	removed map[string]bool
}

// sandboxLink accepts the one process that Docker says is the container's first.
type sandboxLink struct {
	*initlink.Link
	bridge  *bridge       // nil where agbox-init connects by itself
	running chan struct{} // closed once the container was started
	once    sync.Once

	mu  sync.Mutex
	pid int // of the container's first process, once known
}

// found says which process is the container's first one, where that is known already.
func (l *sandboxLink) found(pid int) {
	l.mu.Lock()
	l.pid = pid
	l.mu.Unlock()
}

func (l *sandboxLink) started() { l.once.Do(func() { close(l.running) }) }

// Thaw is for right after the container was unpaused, when the bridge may be about to try again.
func (l *sandboxLink) Thaw() {
	l.Link.Thaw()
	if l.bridge != nil {
		l.bridge.hurry()
	}
}

// Close ends the bridge before what it is connected to.
func (l *sandboxLink) Close() error {
	if l.bridge != nil {
		l.bridge.close()
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
		return nil, fmt.Errorf("%w: sandbox %s is removed", initlink.ErrClosed, sandboxID)
	}
	if err := d.layout.make(sandboxID); err != nil {
		return nil, fmt.Errorf("cannot make the sandbox's directories: %w", err)
	}
	l := &sandboxLink{running: make(chan struct{})}
	relayed := d.layout.relayed(sandboxID)
	verify := func(ctx context.Context, pid int) error {
		if relayed {
			return verifyBridge(pid)
		}
		return d.verify(ctx, l, sandboxID, pid)
	}
	var err error
	if l.Link, err = initlink.Listen(d.layout.socket(sandboxID), verify, d.log); err != nil {
		return nil, err
	}
	if relayed {
		l.bridge = d.startBridge(sandboxID, l.running)
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

// verify lets only the container's first process in, whoever else inside finds the socket. Docker tells its pid
// once the container was started, and it stays the same for as long as the link does.
func (d *Docker) verify(ctx context.Context, l *sandboxLink, sandboxID string, pid int) error {
	select {
	case <-l.running:
	case <-ctx.Done():
		return ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pid == 0 {
		ctx, cancel := d.read(ctx)
		defer cancel()
		found, err := d.api.ContainerInspect(ctx, primaryName(sandboxID))
		if err != nil {
			return err
		}
		if found.State == nil || !found.State.Running || !d.owns(found.Config.Labels, sandboxID) {
			return fmt.Errorf("container %s is not running", primaryName(sandboxID))
		}
		l.pid = found.State.Pid
	}
	if l.pid != pid {
		return fmt.Errorf("the first process of %s is %d", primaryName(sandboxID), l.pid)
	}
	return nil
}

// verifyBridge lets only this process in. Who speaks at the other end of the bridge, its relay tells.
func verifyBridge(pid int) error {
	if pid != os.Getpid() {
		return fmt.Errorf("only agboxd itself, pid %d, may connect", os.Getpid())
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
	for _, link := range all {
		link.Close()
	}
}
