package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/agbox-dev/agbox/persist"
	"github.com/agbox-dev/agbox/server"
)

// guard sees to it that what the daemon has at fixed places stays there: the database and the instance file, the socket and
// the lock.
type guard struct {
	paths  paths
	db     *persist.DB
	socket *server.Socket
	lock   *hostLock
	log    *slog.Logger
}

// watch does so until ctx ends; then wait returns. Where nothing can be watched it says so, once: the database's place is
// looked at with each change of it in any case.
func (g *guard) watch(ctx context.Context) (wait func()) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		g.log.Warn("a socket that somebody removes will not be made again: nothing can be watched", slog.Any("error", err))
		return func() {}
	}
	g.add(watcher)
	var group sync.WaitGroup
	group.Go(func() {
		defer watcher.Close()
		for {
			select {
			case event := <-watcher.Events:
				if g.concerns(event) {
					g.check()
					g.add(watcher) // a directory that was made again
				}
			case err := <-watcher.Errors: // something may have been missed
				g.log.Warn("the daemon's directories were not watched for a moment", slog.Any("error", err))
				g.check()
			case <-ctx.Done():
				return
			}
		}
	})
	return group.Wait
}

// add watches both directories; adding one again does nothing.
func (g *guard) add(watcher *fsnotify.Watcher) {
	for _, dir := range []string{g.paths.data, filepath.Dir(g.paths.socket)} {
		if err := watcher.Add(dir); err != nil {
			g.log.Warn("a directory cannot be watched", slog.String("path", dir), slog.Any("error", err))
		}
	}
}

func (g *guard) concerns(event fsnotify.Event) bool {
	if !event.Has(fsnotify.Remove) && !event.Has(fsnotify.Rename) && !event.Has(fsnotify.Create) {
		return false
	}
	for _, path := range []string{g.paths.database, g.paths.witness, g.paths.socket, g.paths.lock, g.paths.data, filepath.Dir(g.paths.socket)} {
		if event.Name == path {
			return true
		}
	}
	return false
}

func (g *guard) check() {
	if err := g.db.Check(); err != nil {
		g.log.Error("audit: the database is not where it was", slog.Any("error", err))
	}
	made, err := g.socket.Check()
	if err != nil {
		g.log.Error("audit: the socket was removed, and cannot be made again", slog.String("path", g.paths.socket), slog.Any("error", err))
	} else if made {
		g.log.Warn("audit: the socket was removed, and made again", slog.String("path", g.paths.socket))
	}
	if made, err := g.lock.check(); err != nil {
		g.log.Error("audit: the host lock was removed, and cannot be taken again", slog.Any("error", err))
	} else if made {
		g.log.Warn("audit: the host lock was removed, and taken again", slog.String("path", g.paths.lock))
	}
}
