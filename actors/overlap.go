package actors

import (
	"fmt"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/paths"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// overlap refuses mounts by which one of two sandboxes could exchange what the other one mounts: a source strictly below a
// directory that another one may write to. The same source in both is fine, since nobody can exchange it by what is in it.
// Within one spec too: nothing of a sandbox runs while its mounts are made.
func overlap(spec *agboxv1.CreateSpec, id string, other *agboxv1.CreateSpec) error {
	for i, m := range spec.GetMounts() {
		for _, o := range other.GetMounts() {
			if m.Source == o.Source {
				continue
			}
			if o.Writable && paths.Within(m.Source, o.Source) {
				return &lifecycle.Refusal{Kind: ErrOverlap, Message: fmt.Sprintf("create_spec.mounts[%d].source: %q lies in %q, which sandbox %s may write to, "+
					"so that it decides what is there: mount %q itself, copy the source in, or delete that sandbox first", i, m.Source, o.Source, id, o.Source)}
			}
			if m.Writable && paths.Within(o.Source, m.Source) {
				return &lifecycle.Refusal{Kind: ErrOverlap, Message: fmt.Sprintf("create_spec.mounts[%d].source: %q cannot be mounted writable: sandbox %s has %q of it, "+
					"which the new one could exchange: mount it with mode ro or cow, or delete that sandbox first", i, m.Source, id, o.Source)}
			}
		}
	}
	return nil
}

// overlapping checks the spec against every sandbox that is not DELETED, those that are about to be included; r.mu is held.
func (r *registry) overlapping(spec *agboxv1.CreateSpec) error {
	if len(spec.GetMounts()) == 0 {
		return nil
	}
	for id, claim := range r.claims {
		if err := overlap(spec, id, claim.spec); err != nil {
			return err
		}
	}
	for id, e := range r.entries {
		if state := e.state.Load(); state == nil || state.Phase == lifecycle.Deleted {
			continue
		}
		if err := overlap(spec, id, e.spec); err != nil {
			return err
		}
	}
	return nil
}
