package sdk

import (
	"context"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
)

// What errors.Is finds in an *Error about a snapshot.
var (
	ErrSnapshotNotFound = raw.ErrSnapshotNotFound
	ErrSnapshotIDTaken  = raw.ErrSnapshotIDTaken
	ErrSnapshotInUse    = raw.ErrSnapshotInUse
)

// Snapshot is what a sandbox's files and its spec were at one time. What is mounted is not in it.
type Snapshot struct {
	ID        string
	SandboxID string // what it was made from, which may be gone
	Labels    map[string]string
	CreatedAt time.Time
	SizeBytes uint64 // of all its layers, those that it shares with other images included
	Image     string // the engine's name of it
	// Fork: it belongs to a fork, and goes with that.
	Fork bool
}

// SnapshotRequest says how a snapshot is called.
type SnapshotRequest struct {
	ID     string // by the rules of WithSandboxID, and not in use; "": the daemon makes a UUID
	Labels map[string]string
	// Progress, unless nil, hears how far it is, before Snapshot returns: "waiting" for what else is done with the sandbox, "measuring" what
	// it has beyond its image, "reading" so many bytes of that, while it stands still, "keeping" what was read.
	Progress func(stage string, sizeBytes uint64)
}

// SnapshotFilter selects snapshots; the zero value selects all.
type SnapshotFilter struct {
	SandboxID string            // "": of all sandboxes
	Labels    map[string]string // a snapshot must carry all of them
}

// Snapshot keeps the files of a sandbox that is READY, PAUSED, DRAINING, STOPPED or FAILED, and returns once they are
// kept. The sandbox stands still meanwhile and stays in its state. When ctx ends first it goes on at once, and there is no snapshot.
func (c *Client) Snapshot(ctx context.Context, sandboxID string, request SnapshotRequest) (Snapshot, error) {
	asked := &agboxv1.SnapshotSandboxRequest{SandboxId: sandboxID, SnapshotId: request.ID, Labels: request.Labels}
	if request.Progress == nil {
		resp, err := c.raw.SnapshotSandbox(ctx, asked)
		if err != nil {
			return Snapshot{}, err
		}
		return snapshotOf(resp.GetSnapshot()), nil
	}
	stream, err := c.raw.CaptureSandbox(ctx, asked)
	if err != nil {
		return Snapshot{}, err
	}
	defer stream.Close()
	for {
		progress, err := stream.Recv()
		if err != nil {
			return Snapshot{}, err
		}
		if progress.GetSnapshot() != nil {
			return snapshotOf(progress.GetSnapshot()), nil
		}
		request.Progress(progress.GetStage(), progress.GetSizeBytes())
	}
}

// ListSnapshots returns what the filter selects, newest first.
func (c *Client) ListSnapshots(ctx context.Context, filter SnapshotFilter) ([]Snapshot, error) {
	resp, err := c.raw.ListSnapshots(ctx, &agboxv1.ListSnapshotsRequest{SandboxId: filter.SandboxID, LabelSelector: filter.Labels})
	if err != nil {
		return nil, err
	}
	return all(resp.GetSnapshots(), snapshotOf), nil
}

// DeleteSnapshot removes a snapshot. One from which there is a sandbox, running or not, is refused with ErrSnapshotInUse.
func (c *Client) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	_, err := c.raw.DeleteSnapshot(ctx, &agboxv1.DeleteSnapshotRequest{SnapshotId: snapshotID})
	return err
}

// FromSnapshot has the sandbox begin with the snapshot's files and spec; Spec and WithConfigYAML override the latter, and
// name no image. "" is as without it.
func FromSnapshot(snapshotID string) CreateOption {
	return createOption(func(c *createCall) { c.snapshot = snapshotID })
}

// Fork creates a sandbox from what another one is now, and waits as CreateSandbox does. The spec overrides the other one's;
// its Image is left out. WithConfigYAML and FromSnapshot mean nothing here.
func (c *Client) Fork(ctx context.Context, sandboxID string, spec Spec, opts ...CreateOption) (Sandbox, error) {
	call := createCall{waiting: waiting{wait: true}}
	for _, opt := range opts {
		opt.create(&call)
	}
	resp, err := c.raw.ForkSandbox(ctx, &agboxv1.ForkSandboxRequest{SandboxId: sandboxID, ForkId: call.id, CreateSpec: spec.proto()})
	if err != nil {
		return Sandbox{}, err
	}
	return c.accepted(ctx, resp, call)
}

func snapshotOf(p *agboxv1.Snapshot) Snapshot {
	return Snapshot{
		ID: p.GetSnapshotId(), SandboxID: p.GetSandboxId(), Labels: p.GetLabels(), CreatedAt: timeOf(p.GetCreatedAt()),
		SizeBytes: p.GetSizeBytes(), Image: p.GetImage(), Fork: p.GetFork(),
	}
}
