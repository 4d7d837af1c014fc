package raw

import (
	"context"
	"errors"
	"io"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc"
)

// Receiver is what the daemon sends for one call, as long as the call's context lives, at most. Recv belongs to one
// goroutine; Close must follow and may be called from any.
type Receiver[T any] struct {
	client *Client
	stream grpc.ServerStreamingClient[T]
	cancel context.CancelFunc
}

type (
	// Stream is one subscription to events.
	Stream = Receiver[agboxv1.SandboxEvent]
	// LogStream is one reading of an exec's output.
	LogStream = Receiver[agboxv1.ExecLogChunk]
	// SandboxLogStream is one reading of a sandbox's log.
	SandboxLogStream = Receiver[agboxv1.SandboxLogChunk]
	// FileEvents is one watch on files.
	FileEvents = Receiver[agboxv1.FileEvent]
	// SnapshotStream is the making of one snapshot.
	SnapshotStream = Receiver[agboxv1.SnapshotProgress]
	// StatsStream is one watch of what sandboxes use.
	StatsStream = Receiver[agboxv1.SandboxStats]
	// Hold is a held lease, for as long as it is open.
	Hold = Receiver[agboxv1.HoldSandboxResponse]
)

// receive begins a call. What the daemon refuses, the first Recv tells.
func receive[Req, T any](ctx context.Context, c *Client, req *Req,
	call func(context.Context, *Req, ...grpc.CallOption) (grpc.ServerStreamingClient[T], error)) (*Receiver[T], error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := call(ctx, req)
	if err != nil {
		cancel()
		return nil, c.typed(err)
	}
	return &Receiver[T]{client: c, stream: stream, cancel: cancel}, nil
}

// begun waits until the daemon serves the call; whatever ended it before, Recv tells.
func begun[T any](r *Receiver[T], err error) (*Receiver[T], error) {
	if err == nil {
		_, _ = r.stream.Header()
	}
	return r, err
}

// Recv returns the next message; io.EOF when the daemon has no more, else an *Error. After an error every further call
// fails.
func (r *Receiver[T]) Recv() (*T, error) {
	message, err := r.stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, r.client.typed(err)
	}
	return message, nil
}

// Context returns the stream's context, which is done once the stream has ended.
func (r *Receiver[T]) Context() context.Context { return r.stream.Context() }

// Close ends the call and lets a blocked Recv return. It may be called more than once.
func (r *Receiver[T]) Close() { r.cancel() }

// SubscribeSandboxEvents opens a stream of a sandbox's events. What the daemon refuses, the first Recv tells.
func (c *Client) SubscribeSandboxEvents(ctx context.Context, req *agboxv1.SubscribeSandboxEventsRequest) (*Stream, error) {
	return receive(ctx, c, req, c.rpc.SubscribeSandboxEvents)
}
