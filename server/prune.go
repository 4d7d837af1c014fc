package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/fleet"
	"github.com/agbox-dev/agbox/server/refusal"
	"github.com/agbox-dev/agbox/server/spec"
)

// reasonPruneState: a state whose sandboxes cannot be pruned.
const reasonPruneState = "PRUNE_STATE_INVALID"

// Prune deletes what was at an end when it looked and still is when its turn comes: one that is resumed in between stays.
func (s *Server) Prune(ctx context.Context, req *agboxv1.PruneRequest) (*agboxv1.PruneResponse, error) {
	if err := validatePrune(req); err != nil {
		return nil, err
	}
	states := req.States
	if len(states) == 0 {
		states = []lifecycle.Phase{lifecycle.Stopped, lifecycle.Failed}
	}
	since := time.Now().Add(-req.OlderThan.AsDuration())
	old := func(v actors.View) bool { return fleet.InOneOf(v, states) && !v.State.ChangedAt.AsTime().After(since) }
	views, err := s.fleet.Matching(req.LabelSelector, states...)
	if err != nil {
		return nil, err
	}
	response := &agboxv1.PruneResponse{}
	remove := lifecycle.Delete{Reason: lifecycle.ReasonDeleteRequested}
	if req.DryRun {
		for _, view := range views {
			if old(view) && fits(view, remove) {
				response.SandboxIds = append(response.SandboxIds, view.State.SandboxID)
			}
		}
	} else if response.SandboxIds, _, err = s.askEach(ctx, views, remove, old); err != nil {
		return nil, err
	}
	if req.Snapshots {
		if response.SnapshotIds, err = s.pruneSnapshots(ctx, req, since); err != nil {
			return nil, refusal.Concerning(err, "accepted_count", strconv.Itoa(len(response.SandboxIds)), "accepted_sandbox_ids", firstIDs(response.SandboxIds))
		}
	}
	return response, nil
}

// pruneSnapshots deletes the snapshots that are older than since, belong to no fork and to no sandbox made from them, one
// that this very call deletes included: that needs it until it is gone.
func (s *Server) pruneSnapshots(ctx context.Context, req *agboxv1.PruneRequest, since time.Time) (ids []string, err error) {
	found, err := s.runtime.Snapshots(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b runtime.Snapshot) int {
		return cmp.Or(b.CreatedAt.AsTime().Compare(a.CreatedAt.AsTime()), strings.Compare(a.SnapshotId, b.SnapshotId))
	})
	for _, snapshot := range found {
		if snapshot.ForkID != "" || !fleet.Carries(snapshot.Labels, req.LabelSelector) || snapshot.CreatedAt.AsTime().After(since) {
			continue
		}
		if req.DryRun {
			if needed, err := s.system.MadeFrom(snapshot); err != nil {
				return nil, err
			} else if len(needed) > 0 {
				continue
			}
		} else if err := s.system.DeleteSnapshot(ctx, snapshot.SnapshotId); errors.Is(err, runtime.ErrSnapshotInUse) || errors.Is(err, runtime.ErrSnapshotNotFound) {
			continue
		} else if err != nil {
			return nil, err
		}
		ids = append(ids, snapshot.SnapshotId)
	}
	return ids, nil
}

func validatePrune(req *agboxv1.PruneRequest) error {
	if err := cmp.Or(spec.ValidateLabels("label_selector", req.LabelSelector), spec.ValidateDuration("older_than", req.OlderThan), fleet.KnownStates("states", req.States)); err != nil {
		return err
	}
	for i, state := range req.States {
		switch state {
		case lifecycle.Pending, lifecycle.Deleting, lifecycle.Deleted:
			return &spec.Error{Reason: reasonPruneState, Field: fmt.Sprintf("states[%d]", i),
				Message: stateName(state) + " sandboxes cannot be pruned, something is being made or removed there; name another state, or none for STOPPED and FAILED"}
		}
	}
	return nil
}
