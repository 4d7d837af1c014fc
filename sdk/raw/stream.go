package raw

import (
	"context"
	"errors"
	"io"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc"
)

// Receiver is what the daemon sends for one call, as long as the call's context lives, at most. What the daemon refuses,
// the first Recv tells; io.EOF: the daemon has no more. Recv belongs to one goroutine; Close must follow.
type Receiver[T any] struct {
	grpc.ServerStreamingClient[T]
	cancel context.CancelFunc
}

// Close ends the call and lets a blocked Recv return. It may be called more than once, and from any goroutine.
func (r *Receiver[T]) Close() { r.cancel() }

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
	// Changes is one list of what a sandbox changed.
	Changes = Receiver[agboxv1.SandboxChangesResponse]
)

func receive[Req, T any](ctx context.Context, req *Req,
	call func(context.Context, *Req, ...grpc.CallOption) (grpc.ServerStreamingClient[T], error)) (*Receiver[T], error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := call(ctx, req)
	if err != nil {
		cancel()
		return nil, err
	}
	return &Receiver[T]{stream, cancel}, nil
}

// begun waits until the daemon serves the call; whatever ended it before, Recv tells.
func begun[T any](r *Receiver[T], err error) (*Receiver[T], error) {
	if err == nil {
		_, _ = r.Header()
	}
	return r, err
}

// SubscribeSandboxEvents opens a stream of a sandbox's events.
func (c *Client) SubscribeSandboxEvents(ctx context.Context, req *agboxv1.SubscribeSandboxEventsRequest) (*Stream, error) {
	return receive(ctx, req, c.SandboxServiceClient.SubscribeSandboxEvents)
}

// WatchSandboxes opens a stream of the events of all sandboxes that match. It returns once the stream has begun: of what
// happens from then on nothing is left out.
func (c *Client) WatchSandboxes(ctx context.Context, req *agboxv1.WatchSandboxesRequest) (*Stream, error) {
	return begun(receive(ctx, req, c.SandboxServiceClient.WatchSandboxes))
}

// WatchStats opens a stream of the stats of every sandbox that matches and runs. It returns once the stream has begun.
func (c *Client) WatchStats(ctx context.Context, req *agboxv1.WatchStatsRequest) (*StatsStream, error) {
	return begun(receive(ctx, req, c.SandboxServiceClient.WatchStats))
}

// WatchFiles opens a watch on files.
func (c *Client) WatchFiles(ctx context.Context, req *agboxv1.WatchFilesRequest) (*FileEvents, error) {
	return receive(ctx, req, c.SandboxServiceClient.WatchFiles)
}

// ReadExecLog opens a stream of an exec's output.
func (c *Client) ReadExecLog(ctx context.Context, req *agboxv1.ReadExecLogRequest) (*LogStream, error) {
	return receive(ctx, req, c.SandboxServiceClient.ReadExecLog)
}

// ReadSandboxLog opens a stream of a sandbox's log.
func (c *Client) ReadSandboxLog(ctx context.Context, req *agboxv1.ReadSandboxLogRequest) (*SandboxLogStream, error) {
	return receive(ctx, req, c.SandboxServiceClient.ReadSandboxLog)
}

// HoldSandbox asks for a sandbox's lease: the first Recv tells whether it is held, and the next one when that ends, with
// io.EOF when the sandbox was detached or is gone. Close, or the end of ctx, lets it go.
func (c *Client) HoldSandbox(ctx context.Context, req *agboxv1.HoldSandboxRequest) (*Hold, error) {
	return receive(ctx, req, c.SandboxServiceClient.HoldSandbox)
}

// CaptureSandbox is SnapshotSandbox that tells how far it is; the last message has the snapshot. Close gives it up.
func (c *Client) CaptureSandbox(ctx context.Context, req *agboxv1.SnapshotSandboxRequest) (*SnapshotStream, error) {
	return receive(ctx, req, c.SandboxServiceClient.CaptureSandbox)
}

// SandboxChanges opens a list of what a sandbox changed.
func (c *Client) SandboxChanges(ctx context.Context, req *agboxv1.SandboxChangesRequest) (*Changes, error) {
	return receive(ctx, req, c.SandboxServiceClient.SandboxChanges)
}

// Backup writes the daemon's database, as it is at one moment, to a file of the caller's. Only what was written when it
// returns nil is whole.
func (c *Client) Backup(ctx context.Context, to io.Writer) error {
	stream, err := receive(ctx, &agboxv1.BackupRequest{}, c.SandboxServiceClient.Backup)
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := to.Write(chunk.Data); err != nil {
			return err
		}
	}
}

// AttachStream is one attachment to an exec. Recv belongs to one goroutine, and Send with CloseSend to one that may be
// another. Send blocks while the daemon takes no more; it fails with io.EOF when the stream has ended, and Recv tells why.
// After CloseSend output goes on, and the exec's input stays open.
type AttachStream struct {
	grpc.BidiStreamingClient[agboxv1.AttachExecRequest, agboxv1.AttachExecResponse]
	cancel context.CancelFunc
}

// Close lets a blocked Send or Recv return, and ends nothing in the sandbox. It may be called from any goroutine.
func (s *AttachStream) Close() { s.cancel() }

// AttachExec opens a stream that lives as long as ctx, at most. The first message to send is start. What the daemon
// refuses, Recv tells; it returns io.EOF after the message that is ended. Close must follow.
func (c *Client) AttachExec(ctx context.Context) (*AttachStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.SandboxServiceClient.AttachExec(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	return &AttachStream{stream, cancel}, nil
}
