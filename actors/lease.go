package actors

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// defaultLeaseGrace is what LeaseSpec.grace promises when it is unset.
const defaultLeaseGrace = 30 * time.Second

// lease counts those who hold a sandbox. It is of this process only: holders are its clients.
type lease struct {
	mu      sync.Mutex
	holders int
	// free is since when nobody holds it.
	free time.Time
}

// leaseChanged has the sandbox look at its lease again.
type leaseChanged struct{}

// leased reports whether somebody must hold the sandbox for it to go on.
func leased(state lifecycle.State, spec *agboxv1.CreateSpec) bool {
	return spec.GetLease() != nil && !state.Detached && state.Phase != lifecycle.Deleting && state.Phase != lifecycle.Deleted
}

// leaseEnd is when the sandbox ends unless somebody holds it again, zero for never.
func (e *entry) leaseEnd(state lifecycle.State) time.Time {
	if !leased(state, e.spec) {
		return time.Time{}
	}
	grace := defaultLeaseGrace
	if e.spec.Lease.Grace != nil {
		grace = e.spec.Lease.Grace.AsDuration()
	}
	e.lease.mu.Lock()
	defer e.lease.mu.Unlock()
	if e.lease.holders > 0 {
		return time.Time{}
	}
	if e.spec.Lease.GetOnEnd() == byStop && state.ChangedAt.After(e.lease.free) {
		return state.ChangedAt.Add(grace) // whoever resumes it has time to hold it
	}
	return e.lease.free.Add(grace)
}

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
	if !leased(state, e.spec) {
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
	e.lease.holders += n
	e.lease.free = time.Now()
	e.lease.mu.Unlock()
	if e.pid != nil {
		s.actors.Root.Send(e.pid, &leaseChanged{})
	}
}
