package raw

import (
	"context"
	"errors"
	"io"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc"
)

// Hold is a held lease, for as long as it is open.
type Hold struct {
	client *Client
	stream grpc.ServerStreamingClient[agboxv1.HoldSandboxResponse]
	cancel context.CancelFunc
}

// HoldSandbox asks for a sandbox's lease; the first Recv tells whether it is held. ctx's end lets it go. Close must follow.
func (c *Client) HoldSandbox(ctx context.Context, req *agboxv1.HoldSandboxRequest) (*Hold, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.rpc.HoldSandbox(ctx, req)
	if err != nil {
		cancel()
		return nil, c.typed(err)
	}
	return &Hold{client: c, stream: stream, cancel: cancel}, nil
}

// Recv returns at first when the lease is held, and then when it ends: io.EOF when the sandbox was detached or is
// gone, else an *Error.
func (h *Hold) Recv() (*agboxv1.HoldSandboxResponse, error) {
	response, err := h.stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, h.client.typed(err)
	}
	return response, nil
}

// Close lets the lease go. It may be called more than once, from any goroutine.
func (h *Hold) Close() { h.cancel() }

// DetachSandbox makes a sandbox with a lease one that needs no holder.
func (c *Client) DetachSandbox(ctx context.Context, req *agboxv1.DetachSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	return c.rpc.DetachSandbox(ctx, req)
}
