package envd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/agbox-dev/agbox/gateway/envd/proto/filesystem"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

var (
	errTooMany  = errors.New("the directory has too many files for one answer: list less")
	errOverflow = errors.New("events were lost, for there were too many at once: watch again, and look at what is there")
)

func decimal(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// watch is one on a directory, as a user.
type watch struct {
	b          *box
	user, root string
	entries    bool
}

// watched is what both ways to watch ask for.
type watched interface {
	GetPath() string
	GetRecursive() bool
	GetIncludeEntry() bool
}

// watch begins to watch; what happens from then on its events tell. The context ends it.
func (h *Handler) watch(ctx context.Context, b *box, user string, req watched) (*watch, agboxv1.SandboxService_WatchFilesClient, error) {
	_, err := b.client.ListFiles(ctx, &agboxv1.ListFilesRequest{SandboxId: b.id, User: &user, Path: req.GetPath(), FromHome: true, Limit: 1})
	if err != nil { // missing, or no directory
		return nil, nil, rpcError(err)
	}
	events, err := b.client.WatchFiles(ctx, &agboxv1.WatchFilesRequest{SandboxId: b.id, User: &user, Path: req.GetPath(), FromHome: true, Recursive: req.GetRecursive()})
	if err != nil {
		return nil, nil, rpcError(err)
	}
	first, err := events.Recv()
	if err != nil {
		return nil, nil, rpcError(err)
	}
	if first.GetKind() != "watching" {
		return nil, nil, internal("the watch begins with %q", first.GetKind())
	}
	return &watch{b: b, user: user, root: first.GetPath(), entries: req.GetIncludeEntry()}, events, nil
}

// read is an event as the wire has it; none for what it does not know.
func (w *watch) read(ctx context.Context, e *agboxv1.FileEvent) ([]*filesystem.FilesystemEvent, error) {
	switch e.GetKind() {
	case "created":
		return w.event(ctx, filesystem.EventType_EVENT_TYPE_CREATE, e.GetPath()), nil
	case "modified":
		return w.event(ctx, filesystem.EventType_EVENT_TYPE_WRITE, e.GetPath()), nil
	case "attributes":
		return w.event(ctx, filesystem.EventType_EVENT_TYPE_CHMOD, e.GetPath()), nil
	case "removed":
		return w.event(ctx, filesystem.EventType_EVENT_TYPE_REMOVE, e.GetPath()), nil
	case "renamed":
		var both []*filesystem.FilesystemEvent
		if e.GetOldPath() != "" {
			both = w.event(ctx, filesystem.EventType_EVENT_TYPE_RENAME, e.GetOldPath())
		}
		return append(both, w.event(ctx, filesystem.EventType_EVENT_TYPE_CREATE, e.GetPath())...), nil
	case "overflow":
		return nil, connect.NewError(connect.CodeInternal, errOverflow)
	}
	return nil, nil
}

func (w *watch) event(ctx context.Context, kind filesystem.EventType, p string) []*filesystem.FilesystemEvent {
	name := strings.TrimPrefix(strings.TrimPrefix(p, w.root), "/")
	if name == "" {
		name = path.Base(p)
	}
	event := &filesystem.FilesystemEvent{Name: name, Type: kind}
	gone := kind == filesystem.EventType_EVENT_TYPE_REMOVE || kind == filesystem.EventType_EVENT_TYPE_RENAME
	if w.entries && !gone {
		if file, err := w.b.stat(ctx, w.user, p); err == nil { // as far as it is there still
			event.Entry = entryOf(file)
		}
	}
	return []*filesystem.FilesystemEvent{event}
}

// WatchDir implements filesystemconnect.FilesystemHandler.
func (f *filesystems) WatchDir(ctx context.Context, req *connect.Request[filesystem.WatchDirRequest], stream *connect.ServerStream[filesystem.WatchDirResponse]) error {
	b, user, err := f.rpcUser(ctx, req.Header())
	if err != nil {
		return err
	}
	release, err := f.open(b)
	if err != nil {
		return err
	}
	defer release()
	gone, leave := f.follow(b)
	defer leave()
	under, cancel := context.WithCancel(ctx)
	defer cancel()
	w, events, err := f.watch(under, b, user, req.Msg)
	if err != nil {
		return err
	}
	if err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	news, received, done := make(chan []*filesystem.FilesystemEvent), make(chan error, 1), make(chan struct{})
	defer func() { cancel(); <-done }()
	go func() { // ends with under
		defer close(done)
		received <- w.follow(under, events, func(batch []*filesystem.FilesystemEvent) bool {
			select {
			case news <- batch:
				return true
			case <-under.Done():
				return false
			}
		})
	}()
	interval := keepaliveOf(req.Header())
	quiet := time.NewTimer(interval)
	defer quiet.Stop()
	for {
		select {
		case batch := <-news:
			for _, event := range batch {
				if err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: event}}); err != nil {
					return err
				}
			}
			quiet.Reset(interval)
		case <-quiet.C:
			quiet.Reset(interval)
			if err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}}}); err != nil {
				return err
			}
		case err := <-received:
			if ctx.Err() != nil {
				return rpcError(ctx.Err())
			}
			if err != nil && connect.CodeOf(err) == connect.CodeUnavailable {
				panic(http.ErrAbortHandler)
			}
			return err
		case <-gone:
			panic(http.ErrAbortHandler)
		case <-ctx.Done():
			return rpcError(ctx.Err())
		}
	}
}

// follow hands events on until take wants no more or there are none, and says why; nil: the directory is gone.
func (w *watch) follow(ctx context.Context, events agboxv1.SandboxService_WatchFilesClient, take func([]*filesystem.FilesystemEvent) bool) error {
	for {
		event, err := events.Recv()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return rpcError(err)
		}
		batch, err := w.read(ctx, event)
		if err != nil {
			return err
		}
		if len(batch) > 0 && !take(batch) {
			return context.Cause(ctx)
		}
	}
}

func noWatcher(id string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no watcher %.100q", id))
}
