package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/agbox-dev/agbox/persist"
	"github.com/agbox-dev/agbox/server/socket"
)

// guard sees to it that what the daemon has at fixed places stays there: the database and the instance file, the socket and
// the lock.
type guard struct {
	paths  paths
	db     *persist.DB
	socket *socket.Socket
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
	var group sync.WaitGroup
	group.Go(func() {
		defer watcher.Close()
		g.check(watcher)
		for {
			select {
			case event := <-watcher.Events:
				if g.concerns(event) {
					g.check(watcher)
				}
			case err := <-watcher.Errors: // something may have been missed
				g.log.Warn("the daemon's directories were not watched for a moment", slog.Any("error", err))
				g.check(watcher)
			case <-ctx.Done():
				return
			}
		}
	})
	return group.Wait
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

// check looks until nothing had to be made any more: a directory that was made is watched from the next look on, and what
// has happened in it by then only that look shows.
func (g *guard) check(watcher *fsnotify.Watcher) {
	for made := true; made; {
		for _, dir := range []string{g.paths.data, filepath.Dir(g.paths.socket)} {
			if err := watcher.Add(dir); err != nil && !errors.Is(err, os.ErrNotExist) { // which the look mends
				g.log.Warn("a directory cannot be watched", slog.String("path", dir), slog.Any("error", err))
			}
		}
		made = g.look()
	}
}

func (g *guard) look() (made bool) {
	if err := g.db.Check(); err != nil {
		g.log.Error("audit: the database is not where it was", slog.Any("error", err))
	}
	for _, place := range []struct {
		name, path string
		check      func() (made bool, err error)
	}{{"socket", g.paths.socket, g.socket.Check}, {"host lock", g.paths.lock, g.lock.check}} {
		again, err := place.check()
		if err != nil {
			g.log.Error("audit: the "+place.name+" was removed, and cannot be made again", slog.String("path", place.path), slog.Any("error", err))
		} else if again {
			g.log.Warn("audit: the "+place.name+" was removed, and made again", slog.String("path", place.path))
		}
		made = made || again && err == nil
	}
	return made
}
