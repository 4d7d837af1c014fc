package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/fleet"
	"github.com/agbox-dev/agbox/server/refusal"
	"github.com/agbox-dev/agbox/server/spec"
)

const (
	reasonSnapshotNotFound = "SNAPSHOT_NOT_FOUND"
	reasonSnapshotIDTaken  = "SNAPSHOT_ID_TAKEN"
	reasonSnapshotInUse    = "SNAPSHOT_IN_USE"
	reasonSnapshotTooLarge = "SNAPSHOT_TOO_LARGE"
)

// lockSnapshot has those who do something with the same snapshot do it one after the other.
func (s *Server) lockSnapshot(ctx context.Context, snapshotID string) (unlock func(), err error) {
	if unlock, err = s.snapshots.Lock(ctx, snapshotID); err != nil {
		return nil, fmt.Errorf("snapshot %s is being worked on: %w", snapshotID, err)
	}
	return unlock, nil
}

func (s *Server) SnapshotSandbox(ctx context.Context, req *agboxv1.SnapshotSandboxRequest) (*agboxv1.SnapshotSandboxResponse, error) {
	req.SnapshotId = cmp.Or(req.SnapshotId, uuid.NewString())
	made, err := s.snapshotSandbox(ctx, req.SnapshotId, req, nil)
	if err != nil {
		return nil, err
	}
	return &agboxv1.SnapshotSandboxResponse{Snapshot: made.Snapshot}, nil
}

func (s *Server) CaptureSandbox(req *agboxv1.SnapshotSandboxRequest, stream grpc.ServerStreamingServer[agboxv1.SnapshotProgress]) error {
	req.SnapshotId = cmp.Or(req.SnapshotId, uuid.NewString())
	progress := &agboxv1.SnapshotProgress{}
	made, err := s.snapshotSandbox(stream.Context(), req.SnapshotId, req, func(stage string, size uint64) {
		progress.Stage, progress.SizeBytes = stage, size
		_ = stream.Send(progress) // it fails when the call has ended, which ends all
	})
	if err != nil {
		return err
	}
	progress.Stage, progress.Snapshot = "made", made.Snapshot
	return stream.Send(progress)
}

func (s *Server) snapshotSandbox(ctx context.Context, id string, req *agboxv1.SnapshotSandboxRequest, progress func(string, uint64)) (runtime.Snapshot, error) {
	if err := spec.ValidateSnapshotID("snapshot_id", id); err != nil {
		return runtime.Snapshot{}, err
	}
	if err := spec.ValidateLabels("labels", req.Labels); err != nil {
		return runtime.Snapshot{}, err
	}
	unlock, err := s.lockSnapshot(ctx, id)
	if err != nil {
		return runtime.Snapshot{}, err
	}
	defer unlock()
	mark := requestID(ctx)
	earlier, err := s.runtime.Snapshot(ctx, id)
	switch {
	case err == nil && mark != "" && earlier.RequestID == mark && earlier.SandboxId == req.SandboxId && maps.Equal(earlier.Labels, req.Labels):
		return earlier, nil
	case err == nil:
		return runtime.Snapshot{}, &lifecycle.Refusal{Kind: runtime.ErrSnapshotIDTaken, Message: fmt.Sprintf(
			"snapshot id %s is that of a snapshot of sandbox %s: choose another id, or delete that one", id, earlier.SandboxId)}
	case !errors.Is(err, runtime.ErrSnapshotNotFound):
		return runtime.Snapshot{}, err
	}
	return s.capture(ctx, runtime.Snapshot{RequestID: mark, Progress: progress, Snapshot: &agboxv1.Snapshot{
		SnapshotId: id, SandboxId: req.SandboxId, Labels: req.Labels,
	}})
}

// capture has the runtime make the snapshot while nothing changes its sandbox.
func (s *Server) capture(ctx context.Context, want runtime.Snapshot) (made runtime.Snapshot, err error) {
	// One that is being made, or was deleted, is told so at once.
	view, err := s.system.Sandbox(want.SandboxId)
	if err == nil {
		err = hasPrimary(view.State)
	}
	if err == nil {
		err = s.room()
	}
	if err != nil {
		return made, err
	}
	want.Tell("waiting", 0)
	err = s.system.WithExclusive(ctx, want.SandboxId, func(view actors.View) error {
		if err := hasPrimary(view.State); err != nil {
			return err
		}
		want.Spec = view.Spec
		made, err = s.runtime.CreateSnapshot(ctx, want)
		select {
		case s.snapshotMade <- struct{}{}:
		default:
		}
		if errors.Is(err, runtime.ErrNothingToKeep) {
			return &lifecycle.Refusal{Kind: lifecycle.ErrInvalidState, Message: fmt.Sprintf("cannot make a snapshot of sandbox %s, which is %s: %s",
				want.SandboxId, stateName(view.State.Phase), said(err, runtime.ErrNothingToKeep))}
		}
		return err
	})
	return made, err
}

// hasPrimary refuses a sandbox in a state in which it has no files of its own, or not all of them.
func hasPrimary(state lifecycle.State) error {
	advice := "only one that is READY, PAUSED, DRAINING, STOPPED or FAILED has files to keep"
	switch state.Phase {
	case lifecycle.Ready, lifecycle.Paused, lifecycle.Draining, lifecycle.Stopped, lifecycle.Failed:
		return nil
	case lifecycle.Pending:
		advice = "wait until it is READY"
	case agboxv1.SandboxState_SANDBOX_STATE_DORMANT:
		advice = "nothing of it was made yet, create another one from the same spec"
	}
	return &lifecycle.Refusal{Kind: lifecycle.ErrInvalidState, Message: fmt.Sprintf("cannot make a snapshot of sandbox %s, which is %s: %s",
		state.SandboxID, stateName(state.Phase), advice)}
}

// said is an error's text without that of the sentinel that it begins with.
func said(err, sentinel error) string {
	return strings.TrimPrefix(err.Error(), sentinel.Error()+": ")
}

func (s *Server) ListSnapshots(ctx context.Context, req *agboxv1.ListSnapshotsRequest) (*agboxv1.ListSnapshotsResponse, error) {
	if err := spec.ValidateLabels("label_selector", req.LabelSelector); err != nil {
		return nil, err
	}
	found, err := s.runtime.Snapshots(ctx)
	if err != nil {
		return nil, err
	}
	response := &agboxv1.ListSnapshotsResponse{}
	for _, snapshot := range found {
		if fleet.Carries(snapshot.Labels, req.LabelSelector) && (req.SandboxId == "" || req.SandboxId == snapshot.SandboxId) {
			response.Snapshots = append(response.Snapshots, snapshot.Snapshot)
		}
	}
	slices.SortFunc(response.Snapshots, func(a, b *agboxv1.Snapshot) int {
		return cmp.Or(b.CreatedAt.AsTime().Compare(a.CreatedAt.AsTime()), strings.Compare(a.SnapshotId, b.SnapshotId))
	})
	return response, nil
}

func (s *Server) DeleteSnapshot(ctx context.Context, req *agboxv1.DeleteSnapshotRequest) (*agboxv1.DeleteSnapshotResponse, error) {
	if err := s.deleteSnapshot(ctx, req.SnapshotId); err != nil {
		return nil, err
	}
	return &agboxv1.DeleteSnapshotResponse{}, nil
}

// deleteSnapshot removes a snapshot that nobody needs; otherwise it fails with runtime.ErrSnapshotInUse, or
// runtime.ErrSnapshotNotFound.
func (s *Server) deleteSnapshot(ctx context.Context, id string) error {
	unlock, err := s.lockSnapshot(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	found, err := s.runtime.Snapshot(ctx, id)
	if err == nil {
		err = ownedByFork(found)
	}
	if err != nil {
		return err
	}
	needed, err := s.madeFrom(found)
	if err != nil {
		return err
	}
	if len(needed) > 0 {
		return &lifecycle.Refusal{Kind: runtime.ErrSnapshotInUse, Message: fmt.Sprintf(
			"%s made from snapshot %s and may need it again: delete what was made from it first", enumerated(needed), id)}
	}
	err = s.runtime.DeleteSnapshot(ctx, id)
	if errors.Is(err, runtime.ErrSnapshotInUse) {
		err = &lifecycle.Refusal{Kind: runtime.ErrSnapshotInUse, Message: fmt.Sprintf(
			"snapshot %s is needed by a container that is no sandbox's: remove that first: %s", id, said(err, runtime.ErrSnapshotInUse))}
	}
	return err
}

// ownedByFork refuses a snapshot that goes with the sandbox that was made from it.
func ownedByFork(snapshot runtime.Snapshot) error {
	if snapshot.ForkID == "" {
		return nil
	}
	return &lifecycle.Refusal{Kind: runtime.ErrSnapshotInUse, Message: fmt.Sprintf(
		"snapshot %s belongs to sandbox %s and goes when that is deleted: make one of that sandbox to keep or to use",
		snapshot.SnapshotId, snapshot.ForkID)}
}

// madeFrom returns the ids of the sandboxes that need the snapshot: all that were made from it and are not DELETED.
func (s *Server) madeFrom(snapshot runtime.Snapshot) ([]string, error) {
	views, err := s.system.Sandboxes(func(spec *agboxv1.CreateSpec) bool { return spec.Image == snapshot.Image })
	var ids []string
	for _, view := range views {
		if view.State.Phase != lifecycle.Deleted {
			ids = append(ids, view.State.SandboxID)
		}
	}
	slices.Sort(ids)
	return ids, err
}

func enumerated(ids []string) string {
	const most = 5
	text := strings.Join(ids[:min(len(ids), most)], ", ")
	switch {
	case len(ids) > most:
		return fmt.Sprintf("sandboxes %s and %d more are", text, len(ids)-most)
	case len(ids) > 1:
		return "sandboxes " + text + " are"
	}
	return "sandbox " + text + " is"
}

// createFromSnapshot is CreateSandbox from a snapshot, which is not deleted meanwhile.
func (s *Server) createFromSnapshot(ctx context.Context, req *agboxv1.CreateSandboxRequest) (*agboxv1.CreateSandboxResponse, error) {
	unlock, err := s.lockSnapshot(ctx, req.SnapshotId)
	if err != nil {
		return nil, err
	}
	defer unlock()
	found, err := s.runtime.Snapshot(ctx, req.SnapshotId)
	if err == nil {
		err = ownedByFork(found)
	}
	if err != nil {
		return nil, err
	}
	resolved, err := spec.ResolveOn(spec.FromSnapshot(found.Spec, found.Image), req, s.config.Host)
	if err != nil {
		return nil, err
	}
	req.SandboxId = cmp.Or(req.SandboxId, uuid.NewString())
	return s.create(ctx, req.SandboxId, resolved)
}

func (s *Server) ForkSandbox(ctx context.Context, req *agboxv1.ForkSandboxRequest) (*agboxv1.CreateSandboxResponse, error) {
	req.ForkId = cmp.Or(req.ForkId, uuid.NewString())
	id := req.ForkId
	if err := spec.ValidateSandboxID("fork_id", id); err != nil {
		return nil, err
	}
	snapshotID := runtime.ForkSnapshotID(id)
	unlock, err := s.lockSnapshot(ctx, snapshotID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	image := s.runtime.SnapshotImage(snapshotID)
	if earlier, used := s.system.Spec(id); used {
		return s.forkedAlready(ctx, id, earlier, earlier.Image == image)
	}
	resolved, err := s.fork(ctx, id, snapshotID, req)
	if err != nil {
		return nil, err
	}
	response, err := s.create(ctx, id, resolved)
	if _, accepted := s.system.Spec(id); err != nil && !accepted {
		if undone := s.runtime.DeleteSnapshot(context.WithoutCancel(ctx), snapshotID); undone != nil {
			s.log.Warn("the image of a fork that was refused stays until the next start", "image", image, "error", undone)
		}
	}
	return response, refusal.Concerning(err, "sandbox_id", id)
}

// fork makes the snapshot that the fork begins with, unless it could not be accepted anyway, and returns its spec.
func (s *Server) fork(ctx context.Context, id, snapshotID string, req *agboxv1.ForkSandboxRequest) (*spec.Resolved, error) {
	view, err := s.system.Sandbox(req.SandboxId)
	if err != nil {
		return nil, err
	}
	base := spec.FromSnapshot(view.Spec, s.runtime.SnapshotImage(snapshotID))
	resolved, err := spec.ResolveOn(base, &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: req.CreateSpec}, s.config.Host)
	if err != nil {
		return nil, err
	}
	// A daemon that died before the fork was accepted has left one.
	if err := s.runtime.DeleteSnapshot(ctx, snapshotID); err != nil && !errors.Is(err, runtime.ErrSnapshotNotFound) {
		return nil, err
	}
	if err := s.system.Begin(id); err != nil {
		return nil, err
	}
	_, err = s.capture(ctx, runtime.Snapshot{ForkID: id, RequestID: requestID(ctx), Snapshot: &agboxv1.Snapshot{
		SnapshotId: snapshotID, SandboxId: req.SandboxId,
	}})
	return resolved, err
}

// forkedAlready answers a fork whose id is in use: with the sandbox when this is the request that made it.
func (s *Server) forkedAlready(ctx context.Context, id string, earlier *agboxv1.CreateSpec, fork bool) (*agboxv1.CreateSandboxResponse, error) {
	mark := requestID(ctx)
	if !fork || mark == "" {
		return nil, refusal.Concerning(actors.ErrSandboxIDTaken, "sandbox_id", id)
	}
	view, err := s.system.Create(ctx, id, earlier, mark)
	if err != nil {
		return nil, refusal.Concerning(err, "sandbox_id", id)
	}
	return &agboxv1.CreateSandboxResponse{Sandbox: fleet.Handle(view)}, nil
}
