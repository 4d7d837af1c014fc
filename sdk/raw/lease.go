package raw

import (
	"context"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// HoldSandbox asks for a sandbox's lease: the first Recv tells whether it is held, and the next one when that ends, with
// io.EOF when the sandbox was detached or is gone. Close, or the end of ctx, lets it go.
func (c *Client) HoldSandbox(ctx context.Context, req *agboxv1.HoldSandboxRequest) (*Hold, error) {
	return receive(ctx, c, req, c.rpc.HoldSandbox)
}

// DetachSandbox makes a sandbox with a lease one that needs no holder.
func (c *Client) DetachSandbox(ctx context.Context, req *agboxv1.DetachSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	return c.rpc.DetachSandbox(ctx, req)
}
