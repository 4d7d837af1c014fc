package image

import (
	"context"
	"log/slog"
	"sync"

	"github.com/containerd/errdefs"
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
	notify  func()
	looks   sync.WaitGroup
}

// NewNames knows none. Close it before api.
func NewNames(api *client.Client, log *slog.Logger) *Names {
	return &Names{api: api, log: log, ids: map[string]string{}, notify: func() {}}
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

// Connected says that from now on every change is told by Changed, after which notify is called once it is known what names mean. With
// gap there may have been some since a name was tracked.
func (n *Names) Connected(gap bool, notify func()) {
	n.mu.Lock()
	n.live, n.notify = true, notify
	if gap {
		n.forgetLocked()
	}
	n.mu.Unlock()
	notify()
}

// Disconnected says that changes may happen unseen.
func (n *Names) Disconnected() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.live = false
}

// Changed says that a name may mean another image.
func (n *Names) Changed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forgetLocked()
}

func (n *Names) forgetLocked() {
	n.changes++
	for name := range n.ids {
		n.ids[name] = ""
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
	for failed := false; ; {
		n.mu.Lock()
		changes, notify := n.changes, n.notify
		var names []string
		for name, id := range n.ids {
			if id == "" {
				names = append(names, name)
			}
		}
		if len(names) == 0 || n.closed || failed { // then the next change, or connection, looks again

			n.looking = false
			n.mu.Unlock()
			notify()
			return
		}
		n.mu.Unlock()
		for _, name := range names {
			ctx, cancel := context.WithTimeout(context.Background(), inspectTime)
			found, err := n.api.ImageInspect(ctx, name)
			cancel()
			n.mu.Lock()
			switch {
			case errdefs.IsNotFound(err):
				found.ID = gone
			case err != nil:
				n.log.Warn("cannot look up an image", "image", name, "error", err)
				failed = true
			}
			if n.changes == changes && !failed {
				n.ids[name] = found.ID
			}
			n.mu.Unlock()
		}
	}
}

// Close returns when no look is under way.
func (n *Names) Close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.looks.Wait()
}
