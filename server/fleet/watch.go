package fleet

import (
	"cmp"
	"errors"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/refusal"
	"github.com/agbox-dev/agbox/server/spec"
)

// WatchSandboxes follows the logs of many sandboxes as SubscribeSandboxEvents does that of one. The response headers
// say that it has begun: what is recorded after them is told.
func (s *Fleet) WatchSandboxes(req *agboxv1.WatchSandboxesRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxEvent]) error {
	if err := cmp.Or(spec.ValidateLabels("label_selector", req.LabelSelector), KnownStates("states", req.States)); err != nil {
		return err
	}
	w := watch{fleet: s, selector: req.LabelSelector, states: req.States, stream: stream, version: s.db.Version(), cursors: map[string]uint64{}}
	if err := w.begin(req.IncludeCurrentSnapshot); err != nil {
		return err
	}
	for {
		changes := s.db.ChangesAfter(w.version)
		w.take(changes)
		if len(w.due) > 0 {
			if err := w.round(); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changes.Next:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// watch is one subscription to many sandboxes: a number for each, and the names of those that have more to tell.
type watch struct {
	fleet    *Fleet
	selector map[string]string
	// states are those whose events are told, all when there are none.
	states []lifecycle.Phase
	stream grpc.ServerStreamingServer[agboxv1.SandboxEvent]
	// version is up to where it has been told which sandboxes changed.
	version uint64
	// cursors holds the newest sequence sent, or left out, of each sandbox that matches, until that is DELETED. due are those that
	// may have more, each once.
	cursors map[string]uint64
	due     []string
}

// begin places the cursors, and tells the present states when they are wanted.
func (w *watch) begin(snapshots bool) error {
	views, err := w.fleet.Matching(w.selector)
	if err != nil {
		return err
	}
	var told []*agboxv1.SandboxEvent
	for _, view := range views {
		if view.State.Phase == lifecycle.Deleted {
			continue
		}
		w.cursors[view.State.SandboxID] = view.State.Sequence
		if snapshots && InOneOf(view, w.states) {
			told = append(told, snapshot(view)...)
		}
	}
	if err := w.stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	for _, event := range told {
		if err := w.stream.Send(event); err != nil {
			return err
		}
	}
	return nil
}

// take notes which sandboxes have something to tell.
func (w *watch) take(changes persist.Changes) {
	// A sandbox without a cursor is a new one, or does not match, or was DELETED and told so. Each is new only once.
	for _, id := range changes.Created {
		if _, found := w.cursors[id]; found {
			continue
		}
		if sandbox, found := w.fleet.system.Spec(id); found && Carries(sandbox.Labels, w.selector) {
			w.cursors[id] = 0
		}
	}
	noted := make(map[string]bool, len(w.due))
	for _, id := range w.due {
		noted[id] = true
	}
	note := func(id string) {
		if _, found := w.cursors[id]; found && !noted[id] {
			w.due = append(w.due, id)
		}
	}
	for _, id := range changes.Changed {
		note(id)
	}
	if changes.Overflow {
		for id := range w.cursors {
			note(id)
		}
	}
	w.version = changes.Version
}

// round sends a chunk of each sandbox that has one, so that a busy one does not keep the others from their turn.
func (w *watch) round() error {
	due := w.due
	w.due = nil
	for _, id := range due {
		cursor, found := w.cursors[id]
		if !found {
			continue // it is DELETED, and that was told
		}
		events, err := w.fleet.db.Events(id, cursor, chunk)
		if errors.Is(err, persist.ErrNoSandbox) {
			delete(w.cursors, id) // purged: there is nothing more to tell
			continue
		} else if err != nil {
			return refusal.Concerning(err, "sandbox_id", id)
		}
		if err := w.send(id, events); err != nil {
			return err
		}
		if len(events) == chunk {
			w.due = append(w.due, id)
		}
	}
	return nil
}

func (w *watch) send(id string, events []*agboxv1.SandboxEvent) error {
	for _, event := range events {
		cursor := w.cursors[id]
		if event.Sequence != cursor+1 {
			return w.fleet.missed(id, cursor)
		}
		if len(w.states) == 0 || slices.Contains(w.states, event.SandboxState) {
			if err := w.stream.Send(event); err != nil {
				return err
			}
		}
		w.cursors[id] = event.Sequence
		if event.EventType == agboxv1.EventType_SANDBOX_DELETED {
			delete(w.cursors, id)
		}
	}
	return nil
}
