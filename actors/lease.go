package actors

import (
	"context"
	"fmt"
)

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
	s.add(e, &e.lease, 1)
	return func() { s.add(e, &e.lease, -1) }, nil
}

// KeepLeases has no lease end any more in this process. For the daemon's own end, which cuts off those who hold: the next
// start gives them time to come back.
func (s *System) KeepLeases() {
	for _, e := range s.registry.all() {
		if e.spec.GetLease() != nil {
			s.add(e, &e.lease, 1)
		}
	}
}
