package actors

import (
	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Spec returns what the sandbox was asked to be, which never changes; found is false for one that there is not, or whose
// history was purged. It reads nothing but memory. A sandbox is found here before its first event is recorded.
func (s *System) Spec(id string) (spec *agboxv1.CreateSpec, found bool) {
	e, found := s.registry.get(id)
	if !found {
		return nil, false
	}
	return e.spec, true
}

// Counts returns how many sandboxes are in each state, and how many execs run, as the actors last knew. It reads
// nothing but memory.
func (s *System) Counts() (sandboxes map[lifecycle.Phase]uint32, execs uint32) {
	sandboxes = map[lifecycle.Phase]uint32{}
	for _, e := range s.registry.all() {
		state := e.state.Load()
		switch {
		case state == nil: // recover leaves out those that were DELETED
			sandboxes[lifecycle.Deleted]++
		case state.Phase != lifecycle.None: // a create that is not accepted yet
			sandboxes[state.Phase]++
			execs += uint32(len(state.Running))
		}
	}
	return sandboxes, execs
}
