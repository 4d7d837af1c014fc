package actors

import (
	"context"
	"sync"
	"time"

	"github.com/agbox-dev/agbox/actors/lifecycle"
)

// users counts who uses something of a sandbox. It is of this process only: they are its clients.
type users struct {
	mu    sync.Mutex
	count lifecycle.Users
}

func (u *users) now() lifecycle.Users {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.count
}

func (e *entry) presence() lifecycle.Presence {
	return lifecycle.Presence{Lease: e.lease.now(), Traffic: e.traffic.now()}
}

// presenceChanged has the sandbox look again at what is next for it.
type presenceChanged struct{}

func (s *System) add(e *entry, of *users, n int) {
	of.mu.Lock()
	of.count.Count += n
	of.count.Since = time.Now()
	of.mu.Unlock()
	if e.pid != nil {
		s.actors.Root.Send(e.pid, &presenceChanged{})
	}
}

// Connect is for who connects to a port of the sandbox: it makes one that is lazy, has one go on whose spec says that it does for
// traffic, and keeps it from being idle until release is called, once. A *lifecycle.Refusal tells why it does not run.
func (s *System) Connect(ctx context.Context, id string) (release func(), err error) {
	e, err := s.entry(id)
	if err != nil {
		return nil, err
	}
	view, err := s.Sandbox(id) // who has seen READY connects
	if err != nil {
		return nil, err
	}
	s.add(e, &e.traffic, 1)
	release = func() { s.add(e, &e.traffic, -1) }
	if use := (lifecycle.Use{Traffic: true}); s.policy(e.spec).Waits(view.State, use) {
		if s.closing.Load() {
			err = ErrShuttingDown
		} else {
			err = s.request(ctx, e, newRequest(use)).err
		}
		if err == nil {
			view, err = s.Sandbox(id)
		}
	}
	if err == nil && (!view.State.Up() || view.State.Phase == lifecycle.Paused) {
		err = lifecycle.NotReachable(view.State)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}
