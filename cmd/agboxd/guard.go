package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

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
	watched, err := newPlaces()
	if err != nil {
		g.log.Warn("a socket that somebody removes will not be made again: nothing can be watched", slog.Any("error", err))
		return func() {}
	}
	var group sync.WaitGroup
	group.Go(func() {
		defer watched.close()
		g.check(watched)
		for {
			names, err := watched.next()
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				g.log.Warn("the daemon's directories are not watched any more", slog.Any("error", err))
				return
			case slices.ContainsFunc(names, g.concerns):
				g.check(watched)
			}
		}
	})
	group.Go(func() {
		<-ctx.Done()
		watched.close()
	})
	return group.Wait
}

func (g *guard) concerns(name string) bool {
	if name == "" {
		return true
	}
	for _, path := range []string{g.paths.database, g.paths.witness, g.paths.socket, g.paths.lock} {
		if name == filepath.Base(path) {
			return true
		}
	}
	return false
}

// check looks until nothing had to be made any more: a directory that was made is watched from the next look on, and what
// has happened in it by then only that look shows.
func (g *guard) check(watched *places) {
	for made := true; made; {
		for _, dir := range []string{g.paths.data, filepath.Dir(g.paths.socket)} {
			if err := watched.add(dir); err != nil && !errors.Is(err, os.ErrNotExist) { // which the look mends
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
