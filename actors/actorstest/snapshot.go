package actorstest

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/actors/runtime"
)

// snapshots are the runtime's snapshots by id.
type snapshots struct {
	mu   sync.Mutex
	kept map[string]runtime.Snapshot
}

// SnapshotImage is a name that says which snapshot it is.
func (r *Runtime) SnapshotImage(snapshotID string) string { return "snapshot:" + snapshotID }

// CreateSnapshot changes nothing in the sandbox, which is an operation on it nevertheless.
func (r *Runtime) CreateSnapshot(ctx context.Context, want runtime.Snapshot) (runtime.Snapshot, error) {
	r.mu.Lock()
	running, made := r.running[want.SandboxId]
	r.mu.Unlock()
	if !made {
		return want, fmt.Errorf("%w: the primary container is gone", runtime.ErrNothingToKeep)
	}
	want.Tell("reading", 0)
	if err := r.operate(ctx, "snapshot", want.SandboxId, running); err != nil {
		return want, err
	}
	r.snapshots.mu.Lock()
	defer r.snapshots.mu.Unlock()
	if _, taken := r.snapshots.kept[want.SnapshotId]; taken {
		return want, runtime.ErrSnapshotIDTaken
	}
	want.Snapshot = proto.CloneOf(want.Snapshot)
	want.Image, want.CreatedAt = r.SnapshotImage(want.SnapshotId), timestamppb.Now()
	want.Fork = want.ForkID != ""
	if r.snapshots.kept == nil {
		r.snapshots.kept = map[string]runtime.Snapshot{}
	}
	r.snapshots.kept[want.SnapshotId] = want
	return want, nil
}

func (r *Runtime) Snapshot(_ context.Context, snapshotID string) (runtime.Snapshot, error) {
	r.snapshots.mu.Lock()
	defer r.snapshots.mu.Unlock()
	found, there := r.snapshots.kept[snapshotID]
	if !there {
		return runtime.Snapshot{}, fmt.Errorf("%w: %s", runtime.ErrSnapshotNotFound, snapshotID)
	}
	return found, nil
}

func (r *Runtime) Snapshots(context.Context) ([]runtime.Snapshot, error) {
	r.snapshots.mu.Lock()
	defer r.snapshots.mu.Unlock()
	list := make([]runtime.Snapshot, 0, len(r.snapshots.kept))
	for _, s := range r.snapshots.kept {
		list = append(list, s)
	}
	return list, nil
}

func (r *Runtime) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	if _, err := r.Snapshot(ctx, snapshotID); err != nil {
		return err
	}
	r.snapshots.mu.Lock()
	defer r.snapshots.mu.Unlock()
	delete(r.snapshots.kept, snapshotID)
	return nil
}
