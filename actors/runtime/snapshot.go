package runtime

import (
	"context"

	"github.com/google/uuid"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Snapshot is an image of a sandbox's primary, with what has to be known to make a sandbox from it. The runtime keeps
// it, and sandboxes do not depend on each other by it.
type Snapshot struct {
	*agboxv1.Snapshot
	// ForkID is the sandbox that alone is made from it, and with which it goes; "" when it is nobody's.
	ForkID string
	// RequestID is the mark of the request that asked for it.
	RequestID string
	// Progress, unless nil, hears how far one is that is wanted, one stage after the other and not after whoever asked was answered:
	// the stage and its size as SnapshotProgress has them.
	Progress func(stage string, sizeBytes uint64)
}

// Tell has Progress hear of a stage.
func (s *Snapshot) Tell(stage string, sizeBytes uint64) {
	if s.Progress != nil {
		s.Progress(stage, sizeBytes)
	}
}

// Snapshots keeps snapshots, and all that is known of them.
type Snapshots interface {
	// SnapshotImage is the image that a sandbox from the snapshot is made from.
	SnapshotImage(snapshotID string) string
	// CreateSnapshot keeps the sandbox's primary, whatever state it is in, with what want says. Nothing else may change
	// the sandbox meanwhile. It bounds its own time, fails with ErrSnapshotIDTaken or ErrNothingToKeep, and leaves none when ctx ends.
	CreateSnapshot(ctx context.Context, want Snapshot) (Snapshot, error)
	// Snapshot fails with ErrSnapshotNotFound.
	Snapshot(ctx context.Context, snapshotID string) (Snapshot, error)
	// Snapshots lists all, those of forks included, in no order.
	Snapshots(ctx context.Context) ([]Snapshot, error)
	// DeleteSnapshot fails with ErrSnapshotNotFound, or ErrSnapshotInUse when the engine needs it.
	DeleteSnapshot(ctx context.Context, snapshotID string) error
}

// forks is the namespace of ForkSnapshotID, made up once.
var forks = uuid.MustParse("5d0f3bb1-6c0e-4f0a-9f0b-8f6b1c1c2b7e")

// ForkSnapshotID is the id of the snapshot that the fork is made from.
func ForkSnapshotID(forkID string) string { return uuid.NewSHA1(forks, []byte(forkID)).String() }
