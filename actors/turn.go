package actors

import (
	"encoding/json"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// turn is how much the operation matters. Removals are as good as another owner, so that what goes does not wait for all that
// comes; those which a deadline brought about are nobody's who waits.
func (s *System) turn(e *entry, operation lifecycle.Operation) runtime.Turn {
	owner := s.owner(e.spec)
	if operation != lifecycle.Removing {
		return runtime.Turn{Owner: owner}
	}
	if e.state.Load().Reason != lifecycle.ReasonDeleteRequested {
		return runtime.Turn{Class: runtime.Cleanup, Owner: owner}
	}
	return runtime.Turn{Owner: "removal/" + owner}
}

// owner is whose the sandbox is.
func (s *System) owner(spec *agboxv1.CreateSpec) string {
	if owner, named := spec.GetLabels()[s.config.OwnerLabel]; named {
		return "owner/" + owner
	}
	labels, err := json.Marshal(spec.GetLabels()) // in the order of the keys
	if err != nil {
		return ""
	}
	return "labels/" + string(labels)
}
