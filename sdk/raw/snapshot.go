package raw

import (
	"context"
	"errors"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Sentinels of snapshots; errors.Is finds them in what a call returns.
var (
	ErrSnapshotNotFound = errors.New("raw: snapshot not found")
	ErrSnapshotIDTaken  = errors.New("raw: snapshot id is in use")
	ErrSnapshotInUse    = errors.New("raw: snapshot is needed by a sandbox")
)

// SnapshotSandbox returns when the snapshot is whole. There is none when ctx ends first.
func (c *Client) SnapshotSandbox(ctx context.Context, req *agboxv1.SnapshotSandboxRequest) (*agboxv1.SnapshotSandboxResponse, error) {
	return c.rpc.SnapshotSandbox(ctx, req)
}

// CaptureSandbox is SnapshotSandbox that tells how far it is; the last message has the snapshot. Close gives it up.
func (c *Client) CaptureSandbox(ctx context.Context, req *agboxv1.SnapshotSandboxRequest) (*SnapshotStream, error) {
	return receive(ctx, c, req, c.rpc.CaptureSandbox)
}

// ListSnapshots returns the snapshots that match, newest first.
func (c *Client) ListSnapshots(ctx context.Context, req *agboxv1.ListSnapshotsRequest) (*agboxv1.ListSnapshotsResponse, error) {
	return c.rpc.ListSnapshots(ctx, req)
}

// DeleteSnapshot removes a snapshot that no sandbox needs.
func (c *Client) DeleteSnapshot(ctx context.Context, req *agboxv1.DeleteSnapshotRequest) (*agboxv1.DeleteSnapshotResponse, error) {
	return c.rpc.DeleteSnapshot(ctx, req)
}

// ForkSandbox returns when the fork is accepted: its files are kept by then, and it is not READY yet.
func (c *Client) ForkSandbox(ctx context.Context, req *agboxv1.ForkSandboxRequest) (*agboxv1.CreateSandboxResponse, error) {
	return c.rpc.ForkSandbox(ctx, req)
}
