package raw

import (
	"context"
	"errors"
	"io"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc"
)

// SandboxLogStream is one reading of a sandbox's log. Recv belongs to one goroutine; Close may be called from any.
type SandboxLogStream struct {
	client *Client
	stream grpc.ServerStreamingClient[agboxv1.SandboxLogChunk]
	cancel context.CancelFunc
}

// ReadSandboxLog opens a stream that lives as long as ctx, at most. What the daemon refuses, the first Recv tells.
// Close must follow.
func (c *Client) ReadSandboxLog(ctx context.Context, req *agboxv1.ReadSandboxLogRequest) (*SandboxLogStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.rpc.ReadSandboxLog(ctx, req)
	if err != nil {
		cancel()
		return nil, c.typed(err)
	}
	return &SandboxLogStream{client: c, stream: stream, cancel: cancel}, nil
}

// Recv returns the next chunk; io.EOF at the end of the log, else an *Error. After an error every further call fails.
func (s *SandboxLogStream) Recv() (*agboxv1.SandboxLogChunk, error) {
	chunk, err := s.stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, s.client.typed(err)
	}
	return chunk, nil
}

// Close ends the stream and lets a blocked Recv return. It may be called more than once.
func (s *SandboxLogStream) Close() { s.cancel() }
