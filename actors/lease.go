package actors

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/agbox-dev/agbox/actors/lifecycle"
)

// lease counts those who hold a sandbox. It is of this process only: holders are its clients.
type lease struct {
	mu    sync.Mutex
	count lifecycle.Lease
}

func (l *lease) now() lifecycle.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// leaseChanged has the sandbox look at its lease again.
type leaseChanged struct{}

// Hold holds the sandbox's lease until release is called, once. It fails with ErrNotFound, or ErrNoLease when the sandbox
// was created without a lease, was detached, or is being deleted.
func (s *System) Hold(_ context.Context, id string) (release func(), err error) {
	e, err := s.entry(id)
	if err != nil {
		return nil, err
	}
	state, err := e.load(s.db)
	if err != nil {
		return nil, err
	}
	if !s.policy(e.spec).Leased(state) {
		return nil, fmt.Errorf("%w: %s", ErrNoLease, id)
	}
	s.hold(e, 1)
	return func() { s.hold(e, -1) }, nil
}

// KeepLeases has no lease end any more in this process. For the daemon's own end, which cuts off those who hold: the next
// start gives them time to come back.
func (s *System) KeepLeases() {
	for _, e := range s.registry.all() {
		if e.spec.GetLease() != nil {
			s.hold(e, 1)
		}
	}
}

func (s *System) hold(e *entry, n int) {
	e.lease.mu.Lock()
	e.lease.count.Holders += n
	e.lease.count.Since = time.Now()
	e.lease.mu.Unlock()
	if e.pid != nil {
		s.actors.Root.Send(e.pid, &leaseChanged{})
	}
}
