// Package fleet shows clients the sandboxes that there are: those that they select, and what happens to these.
package fleet

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

// Stats reads what the containers of a sandbox use, the primary first; the runtime has it.
type Stats interface {
	Stats(ctx context.Context, sandboxID string) ([]*agboxv1.ContainerStats, error)
}

// Fleet serves the calls that follow sandboxes: it reads their logs, and asks no actor. A stream's context ends at shutdown, too.
type Fleet struct {
	system  *actors.System
	db      *persist.DB
	runtime Stats
	log     *slog.Logger
}

// New tells log what cannot be read of single sandboxes.
func New(system *actors.System, db *persist.DB, runtime Stats, log *slog.Logger) *Fleet {
	return &Fleet{system, db, runtime, log}
}

// Matching returns the sandboxes that carry every label of the selector and are in one of the states, newest first. No
// states are all.
func (s *Fleet) Matching(selector map[string]string, states ...lifecycle.Phase) ([]actors.View, error) {
	views, err := s.system.Sandboxes(func(spec *agboxv1.CreateSpec) bool { return Carries(spec.Labels, selector) })
	views = slices.DeleteFunc(views, func(v actors.View) bool { return !InOneOf(v, states) })
	slices.SortFunc(views, newestFirst)
	return views, err
}

func newestFirst(a, b actors.View) int {
	return cmp.Or(b.State.CreatedAt.AsTime().Compare(a.State.CreatedAt.AsTime()), strings.Compare(a.State.SandboxID, b.State.SandboxID))
}

// InOneOf reports whether the sandbox is in one of the states; none stands for all of them.
func InOneOf(view actors.View, states []lifecycle.Phase) bool {
	return len(states) == 0 || slices.Contains(states, view.State.Phase)
}

// Carries reports whether labels hold every one of the selector.
func Carries(labels, selector map[string]string) bool {
	for key, want := range selector {
		if value, found := labels[key]; !found || value != want {
			return false
		}
	}
	return true
}

// reasonStateUnknown: a state to wait or look for that there is not.
const reasonStateUnknown = "STATE_UNKNOWN"

// state is one of the API's enums of states.
type state interface {
	agboxv1.SandboxState | agboxv1.ExecState
	String() string
}

// KnownStates refuses the unspecified state, and those of newer versions, which would never come.
func KnownStates[S state](field string, states []S) error {
	names := agboxv1.SandboxState_name
	if _, execs := any(states).([]agboxv1.ExecState); execs {
		names = agboxv1.ExecState_name
	}
	for i, state := range states {
		if _, known := names[int32(state)]; !known || state == 0 {
			return &spec.Error{Reason: reasonStateUnknown, Field: fmt.Sprintf("%s[%d]", field, i),
				Message: fmt.Sprintf("%s is no state to ask for: name one that the API has", state)}
		}
	}
	return nil
}
