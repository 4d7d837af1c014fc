package server

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc"

	"github.com/agbox-dev/agbox/actors"
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
	if _, err := s.runtime.Snapshot(ctx, id); errors.Is(err, runtime.ErrSnapshotNotFound) {
		if err := s.room(); err != nil {
			return runtime.Snapshot{}, err
		}
	}
	made, err := s.system.Snapshot(ctx, runtime.Snapshot{RequestID: requestID(ctx), Progress: progress, Snapshot: &agboxv1.Snapshot{
		SnapshotId: id, SandboxId: req.SandboxId, Labels: req.Labels,
	}})
	if err == nil {
		select {
		case s.snapshotMade <- struct{}{}:
		default:
		}
	}
	return made, err
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
	if err := s.system.DeleteSnapshot(ctx, req.SnapshotId); err != nil {
		return nil, err
	}
	return &agboxv1.DeleteSnapshotResponse{}, nil
}

// createFromSnapshot is CreateSandbox from a snapshot.
func (s *Server) createFromSnapshot(ctx context.Context, req *agboxv1.CreateSandboxRequest) (*agboxv1.CreateSandboxResponse, error) {
	found, err := s.runtime.Snapshot(ctx, req.SnapshotId)
	if err == nil {
		err = actors.OwnedByFork(found)
	}
	if err != nil {
		return nil, err
	}
	resolved, err := spec.ResolveOn(spec.FromSnapshot(found.Spec, found.Image), req, s.config.Host)
	if err != nil {
		return nil, err
	}
	req.SandboxId = cmp.Or(req.SandboxId, uuid.NewString())
	if err := s.creatable(ctx, req.SandboxId, resolved); err != nil {
		return nil, err
	}
	return created(s.system.CreateFrom(ctx, req.SnapshotId, req.SandboxId, resolved.Accepted(), requestID(ctx)))
}

func (s *Server) ForkSandbox(ctx context.Context, req *agboxv1.ForkSandboxRequest) (*agboxv1.CreateSandboxResponse, error) {
	req.ForkId = cmp.Or(req.ForkId, uuid.NewString())
	id := req.ForkId
	if err := spec.ValidateSandboxID("fork_id", id); err != nil {
		return nil, err
	}
	response, err := created(s.system.Fork(ctx, req.SandboxId, id, requestID(ctx), func(of actors.View, image string) (*agboxv1.CreateSpec, error) {
		base := spec.FromSnapshot(of.Spec, image)
		resolved, err := spec.ResolveOn(base, &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: req.CreateSpec}, s.config.Host)
		if err == nil {
			err = s.creatable(ctx, id, resolved)
		}
		if err != nil {
			return nil, err
		}
		return resolved.Accepted(), nil
	}))
	if errors.Is(err, actors.ErrSandboxIDTaken) || errors.Is(err, runtime.ErrConflict) {
		err = refusal.Concerning(err, "sandbox_id", id)
	}
	return response, err
}
