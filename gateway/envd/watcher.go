package envd

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/agbox-dev/agbox/gateway/envd/proto/filesystem"
)

const (
	// maxWatchers outlive connections at once, in all and of one sandbox.
	maxWatchers    = 1024
	maxBoxWatchers = 64
	// maxQueue bounds the events that one keeps.
	maxQueue = 10_000
	// seen is how long an upload waits for the watchers of its directory to see it.
	seen = 10 * time.Second
)

var errWatchers = errors.New("too many watchers: remove one first")

// watchers outlive the connections that made them, until they are removed or their sandbox stops. The zero value is ready.
type watchers struct {
	mu  sync.Mutex
	all map[string]*watcher
}

// watcher keeps events until they are fetched.
type watcher struct {
	box, root string
	stop      context.CancelFunc

	mu      sync.Mutex
	queue   []*filesystem.FilesystemEvent
	writes  uint64 // WRITE events there ever were
	err     error
	changed chan struct{}
}

// CreateWatcher implements filesystemconnect.FilesystemHandler.
func (f *filesystems) CreateWatcher(ctx context.Context, req *connect.Request[filesystem.CreateWatcherRequest]) (*connect.Response[filesystem.CreateWatcherResponse], error) {
	b, user, err := f.rpcUser(ctx, req.Header())
	if err != nil {
		return nil, err
	}
	release, err := f.open(b)
	if err != nil {
		return nil, err
	}
	under, stop := context.WithCancel(f.closing)
	context.AfterFunc(under, release)
	w := &watcher{box: b.id, stop: stop, changed: make(chan struct{})}
	id := uuid.NewString()
	if !f.watchers.add(id, w) {
		stop()
		return nil, connect.NewError(connect.CodeResourceExhausted, errWatchers)
	}
	began := context.AfterFunc(ctx, stop) // who leaves before it is made has none
	of, events, err := f.watch(under, b, user, req.Msg)
	if !began() && err == nil {
		err = rpcError(ctx.Err())
	}
	if err != nil {
		stop()
		f.watchers.remove(id, b.id)
		return nil, err
	}
	w.mu.Lock()
	w.root = of.root
	w.mu.Unlock()
	f.work.Go(func() {
		defer stop()
		err := of.follow(under, events, w.keep)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.err == nil {
			w.err = err
		}
		if err != nil && connect.CodeOf(err) == connect.CodeUnavailable { // the sandbox has stopped: nobody will ask
			f.watchers.remove(id, b.id)
		}
	})
	return connect.NewResponse(&filesystem.CreateWatcherResponse{WatcherId: id}), nil
}

// keep reports false when there are too many.
func (w *watcher) keep(batch []*filesystem.FilesystemEvent) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue)+len(batch) > maxQueue {
		w.err = connect.NewError(connect.CodeInternal, errOverflow)
		return false
	}
	for _, event := range batch {
		if event.Type == filesystem.EventType_EVENT_TYPE_WRITE {
			w.writes++
		}
	}
	w.queue = append(w.queue, batch...)
	close(w.changed)
	w.changed = make(chan struct{})
	return true
}

func (ws *watchers) add(id string, w *watcher) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.all == nil {
		ws.all = map[string]*watcher{}
	}
	of := 0
	for _, other := range ws.all {
		if other.box == w.box {
			of++
		}
	}
	if len(ws.all) >= maxWatchers || of >= maxBoxWatchers {
		return false
	}
	ws.all[id] = w
	return true
}

// get returns nil for one that is not of the sandbox.
func (ws *watchers) get(id, box string) *watcher {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.all[id]; w != nil && w.box == box {
		return w
	}
	return nil
}

func (ws *watchers) remove(id, box string) *watcher {
	w := ws.get(id, box)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w != nil {
		delete(ws.all, id)
	}
	return w
}

// GetWatcherEvents implements filesystemconnect.FilesystemHandler.
func (f *filesystems) GetWatcherEvents(ctx context.Context, req *connect.Request[filesystem.GetWatcherEventsRequest]) (*connect.Response[filesystem.GetWatcherEventsResponse], error) {
	w := f.watchers.get(req.Msg.GetWatcherId(), boxOf(ctx).id)
	if w == nil {
		return nil, noWatcher(req.Msg.GetWatcherId())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil && len(w.queue) == 0 {
		return nil, rpcError(w.err)
	}
	events := w.queue
	w.queue = nil
	return connect.NewResponse(&filesystem.GetWatcherEventsResponse{Events: events}), nil
}

// RemoveWatcher implements filesystemconnect.FilesystemHandler.
func (f *filesystems) RemoveWatcher(ctx context.Context, req *connect.Request[filesystem.RemoveWatcherRequest]) (*connect.Response[filesystem.RemoveWatcherResponse], error) {
	w := f.watchers.remove(req.Msg.GetWatcherId(), boxOf(ctx).id)
	if w == nil {
		return nil, noWatcher(req.Msg.GetWatcherId())
	}
	w.stop()
	return connect.NewResponse(&filesystem.RemoveWatcherResponse{}), nil
}

// expect has the caller wait, once it has written a file at a path that wait is given, until the watchers of its directory have seen it: then
// who asks them next hears of it.
func (ws *watchers) expect(box string) (wait func(ctx context.Context, file string)) {
	type mark struct {
		*watcher
		writes uint64
	}
	var marks []mark
	ws.mu.Lock()
	for _, w := range ws.all {
		if w.box == box {
			w.mu.Lock()
			marks = append(marks, mark{w, w.writes})
			w.mu.Unlock()
		}
	}
	ws.mu.Unlock()
	return func(ctx context.Context, file string) {
		ctx, cancel := context.WithTimeout(ctx, seen)
		defer cancel()
		for _, m := range marks {
			m.await(ctx, m.writes, file)
		}
	}
}

func (w *watcher) await(ctx context.Context, writes uint64, file string) {
	for {
		w.mu.Lock()
		covers := w.root != "" && strings.HasPrefix(file, strings.TrimSuffix(w.root, "/")+"/")
		direct := covers && !strings.Contains(strings.TrimPrefix(file, strings.TrimSuffix(w.root, "/")+"/"), "/")
		done, changed := !direct || w.writes > writes || w.err != nil, w.changed
		w.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
