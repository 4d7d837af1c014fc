package raw

import (
	"context"
	"errors"
	"io"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc"
)

// Stream is one subscription to the events of a sandbox. Recv belongs to one goroutine; Close may be
// called from any.
type Stream struct {
	client *Client
	stream grpc.ServerStreamingClient[agboxv1.SandboxEvent]
	cancel context.CancelFunc
}

// SubscribeSandboxEvents opens a stream that lives as long as ctx, at most. What the daemon refuses,
// the first Recv tells. Close must follow.
func (c *Client) SubscribeSandboxEvents(ctx context.Context, req *agboxv1.SubscribeSandboxEventsRequest) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.rpc.SubscribeSandboxEvents(ctx, req)
	if err != nil {
		cancel()
		return nil, c.typed(err)
	}
	return &Stream{client: c, stream: stream, cancel: cancel}, nil
}

// Recv returns the next event; io.EOF when the daemon ended the stream, else an *Error. After an
// error every further call fails.
func (s *Stream) Recv() (*agboxv1.SandboxEvent, error) {
	event, err := s.stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, s.client.typed(err)
	}
	return event, nil
}

// Context returns the stream's context, which is done once the stream has ended.
func (s *Stream) Context() context.Context { return s.stream.Context() }

// Close ends the stream and lets a blocked Recv return. It may be called more than once.
func (s *Stream) Close() { s.cancel() }
