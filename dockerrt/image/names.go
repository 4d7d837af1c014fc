package image

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/client"
)

// Names knows which images the names mean that it was told of, by the engine's events: asking takes no call. When in doubt it does not
// know.
type Names struct {
	api *client.Client
	log *slog.Logger

	mu      sync.Mutex
	ids     map[string]string // by name; "" for one that is not known now
	live    bool              // events are heard
	changes uint64            // how often something has changed
	looking bool
	closed  bool
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	retry   chan struct{} // one token: a look that failed is not to wait any longer
	notify  func()
	looks   sync.WaitGroup
}

// NewNames knows none. Close it before api.
func NewNames(api *client.Client, log *slog.Logger) *Names {
	n := &Names{api: api, log: log, ids: map[string]string{}, notify: func() {}, retry: make(chan struct{}, 1)}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// Track says that the name means the image with this id as of before now, and that it will be asked for.
func (n *Names) Track(ctx context.Context, name string) (id string, err error) {
	n.mu.Lock()
	changes := n.changes
	n.mu.Unlock()
	found, err := n.api.ImageInspect(ctx, name)
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ids[name] = ""
	if n.changes == changes {
		n.ids[name] = found.ID
	} else {
		n.lookLocked()
	}
	return found.ID, nil
}

// ID returns the id of the image that the name means; false where that is not known.
func (n *Names) ID(name string) (id string, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id = n.ids[name]
	return id, n.live && id != ""
}

// gone is the id of no image.
const gone = "none"

// lastLook bounds the time until a look that failed is tried again.
const lastLook = 30 * time.Second

// Connected says that from now on every change is told by Changed, after which notify is called once it is known what names mean. With
// gap there may have been some since a name was tracked.
func (n *Names) Connected(gap bool, notify func()) {
	n.mu.Lock()
	n.live, n.notify = true, notify
	if gap {
		n.forgetLocked(func(string, string) bool { return true })
	}
	n.mu.Unlock()
	select {
	case n.retry <- struct{}{}:
	default:
	}
	notify()
}

// Disconnected says that changes may happen unseen.
func (n *Names) Disconnected() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.live = false
}

// Changed says what an event tells: that names may mean other images, which are those that it concerns.
func (n *Names) Changed(action events.Action, id, of string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forgetLocked(func(name, known string) bool { return concerns(action, id, of, name, known) })
}

// concerns reports whether an event about the image with this id, or of this name, may change what another name means, which was known.
// Repositories are compared without tags; of an event that does not tell which names it changes it is true.
func concerns(action events.Action, id, of, name, known string) bool {
	tracked, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return true
	}
	told, err := reference.ParseNormalizedNamed(of)
	same := err == nil && told.Name() == tracked.Name()
	switch action {
	case events.ActionTag, events.ActionPull:
		return err != nil || same
	case events.ActionUnTag, events.ActionDelete:
		return same || id == "" || id == known
	}
	return true
}

// forgetLocked forgets the names that which accepts, with what they were known to mean; n.mu is held.
func (n *Names) forgetLocked(which func(name, known string) bool) {
	n.changes++
	for name, known := range n.ids {
		if which(name, known) {
			n.ids[name] = ""
		}
	}
	n.lookLocked()
}

// lookLocked has all names looked up that are not known; n.mu is held.
func (n *Names) lookLocked() {
	if n.looking || n.closed || len(n.ids) == 0 {
		return
	}
	n.looking = true
	n.looks.Go(n.look)
}

func (n *Names) look() {
	wait := backoff.NewExponentialBackOff()
	wait.MaxInterval = lastLook
	for {
		n.mu.Lock()
		changes, notify := n.changes, n.notify
		var names []string
		for name, id := range n.ids {
			if id == "" {
				names = append(names, name)
			}
		}
		if len(names) == 0 || n.closed {
			n.looking = false
			n.mu.Unlock()
			notify()
			return
		}
		n.mu.Unlock()
		failed := false
		for _, name := range names {
			ctx, cancel := context.WithTimeout(n.ctx, inspectTime)
			found, err := n.api.ImageInspect(ctx, name)
			cancel()
			if errdefs.IsNotFound(err) {
				found.ID, err = gone, nil
			}
			if err != nil {
				failed = true
				if n.ctx.Err() == nil {
					n.log.Warn("cannot look up an image, trying again", "image", name, "error", err)
				}
				continue
			}
			n.mu.Lock()
			if n.changes == changes {
				n.ids[name] = found.ID
			}
			n.mu.Unlock()
		}
		if !failed {
			wait.Reset()
			continue
		}
		later := time.NewTimer(wait.NextBackOff())
		select {
		case <-later.C:
		case <-n.retry:
		case <-n.ctx.Done():
		}
		later.Stop()
	}
}

// Close returns when no look is under way.
func (n *Names) Close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.cancel()
	n.looks.Wait()
}
