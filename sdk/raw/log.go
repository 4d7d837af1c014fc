package raw

import (
	"context"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// ReadExecLog opens a stream of an exec's output. What the daemon refuses, the first Recv tells.
func (c *Client) ReadExecLog(ctx context.Context, req *agboxv1.ReadExecLogRequest) (*LogStream, error) {
	return receive(ctx, c, req, c.rpc.ReadExecLog)
}

// ReadSandboxLog opens a stream of a sandbox's log. What the daemon refuses, the first Recv tells.
func (c *Client) ReadSandboxLog(ctx context.Context, req *agboxv1.ReadSandboxLogRequest) (*SandboxLogStream, error) {
	return receive(ctx, c, req, c.rpc.ReadSandboxLog)
}
