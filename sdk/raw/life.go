package raw

import (
	"context"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// PauseSandbox returns when the pause of a READY sandbox is accepted.
func (c *Client) PauseSandbox(ctx context.Context, req *agboxv1.PauseSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	return c.rpc.PauseSandbox(ctx, req)
}

// UnpauseSandbox returns when it is accepted that a PAUSED sandbox goes on.
func (c *Client) UnpauseSandbox(ctx context.Context, req *agboxv1.UnpauseSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	return c.rpc.UnpauseSandbox(ctx, req)
}

// DrainSandbox returns when a READY sandbox takes no more execs.
func (c *Client) DrainSandbox(ctx context.Context, req *agboxv1.DrainSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	return c.rpc.DrainSandbox(ctx, req)
}

// ExtendSandbox returns the sandbox with its new deadlines.
func (c *Client) ExtendSandbox(ctx context.Context, req *agboxv1.ExtendSandboxRequest) (*agboxv1.ExtendSandboxResponse, error) {
	return c.rpc.ExtendSandbox(ctx, req)
}

// SignalExec sends a signal to a running exec's own process.
func (c *Client) SignalExec(ctx context.Context, req *agboxv1.SignalExecRequest) (*agboxv1.AcceptedResponse, error) {
	return c.rpc.SignalExec(ctx, req)
}
