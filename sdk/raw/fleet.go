package raw

import (
	"context"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// WaitSandbox returns when the sandbox is in one of the states, or gets there no more, or the request's timeout is over.
func (c *Client) WaitSandbox(ctx context.Context, req *agboxv1.WaitSandboxRequest) (*agboxv1.WaitSandboxResponse, error) {
	return c.rpc.WaitSandbox(ctx, req)
}

// WaitExec returns when the exec has ended, or the request's timeout is over.
func (c *Client) WaitExec(ctx context.Context, req *agboxv1.WaitExecRequest) (*agboxv1.WaitExecResponse, error) {
	return c.rpc.WaitExec(ctx, req)
}

// ListExecs returns execs, newest first, also ended ones whose sandbox's history is kept.
func (c *Client) ListExecs(ctx context.Context, req *agboxv1.ListExecsRequest) (*agboxv1.ListExecsResponse, error) {
	return c.rpc.ListExecs(ctx, req)
}

// GetStats returns what the containers of a running sandbox use now.
func (c *Client) GetStats(ctx context.Context, req *agboxv1.GetStatsRequest) (*agboxv1.GetStatsResponse, error) {
	return c.rpc.GetStats(ctx, req)
}

// Info returns what the daemon runs on, and how much of it is in use.
func (c *Client) Doctor(ctx context.Context, req *agboxv1.DoctorRequest) (*agboxv1.DoctorResponse, error) {
	return c.rpc.Doctor(ctx, req)
}

func (c *Client) Info(ctx context.Context, req *agboxv1.InfoRequest) (*agboxv1.InfoResponse, error) {
	return c.rpc.Info(ctx, req)
}

// WatchSandboxes opens a stream of the events of all sandboxes that match, which lives as long as ctx, at most. It
// returns once the stream has begun: of what happens from then on nothing is left out. What the daemon refuses, the
// first Recv tells. Close must follow.
func (c *Client) WatchSandboxes(ctx context.Context, req *agboxv1.WatchSandboxesRequest) (*Stream, error) {
	return begun(receive(ctx, c, req, c.rpc.WatchSandboxes))
}

// StopSandboxes returns the ids of those that match and accepted to stop; an empty selector is refused.
func (c *Client) StopSandboxes(ctx context.Context, req *agboxv1.StopSandboxesRequest) (*agboxv1.StopSandboxesResponse, error) {
	return c.rpc.StopSandboxes(ctx, req)
}

// ResumeSandboxes returns the ids of those that match and accepted to start again; an empty selector is refused.
func (c *Client) ResumeSandboxes(ctx context.Context, req *agboxv1.ResumeSandboxesRequest) (*agboxv1.ResumeSandboxesResponse, error) {
	return c.rpc.ResumeSandboxes(ctx, req)
}

// Prune returns what it deletes of sandboxes at their end and of snapshots, or with dry_run would.
func (c *Client) Prune(ctx context.Context, req *agboxv1.PruneRequest) (*agboxv1.PruneResponse, error) {
	return c.rpc.Prune(ctx, req)
}

// WatchStats opens a stream of the stats of every sandbox that matches and runs, which lives as long as ctx, at most. It
// returns once the stream has begun. What the daemon refuses, the first Recv tells. Close must follow.
func (c *Client) WatchStats(ctx context.Context, req *agboxv1.WatchStatsRequest) (*StatsStream, error) {
	return begun(receive(ctx, c, req, c.rpc.WatchStats))
}
