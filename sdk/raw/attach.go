package raw

import (
	"context"
	"errors"
	"io"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc"
)

// AttachStream is one attachment to an exec. Recv belongs to one goroutine, and Send with CloseSend to one that may be
// another; Close may be called from any.
type AttachStream struct {
	client *Client
	stream grpc.BidiStreamingClient[agboxv1.AttachExecRequest, agboxv1.AttachExecResponse]
	cancel context.CancelFunc
}

// AttachExec opens a stream that lives as long as ctx, at most. The first message to send is start. What the daemon
// refuses, Recv tells. Close must follow.
func (c *Client) AttachExec(ctx context.Context) (*AttachStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.rpc.AttachExec(ctx)
	if err != nil {
		cancel()
		return nil, c.typed(err)
	}
	return &AttachStream{client: c, stream: stream, cancel: cancel}, nil
}

// Send blocks while the daemon takes no more. io.EOF: the stream has ended, and Recv tells why.
func (s *AttachStream) Send(req *agboxv1.AttachExecRequest) error {
	err := s.stream.Send(req)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return s.client.typed(err)
}

// CloseSend says that nothing more is sent. Output goes on, and the exec's input stays open.
func (s *AttachStream) CloseSend() error { return s.client.typed(s.stream.CloseSend()) }

// Recv returns the next message; io.EOF after the one that is ended, else an *Error. After an error every further call
// fails.
func (s *AttachStream) Recv() (*agboxv1.AttachExecResponse, error) {
	response, err := s.stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, s.client.typed(err)
	}
	return response, nil
}

// Close ends the stream and lets a blocked Recv or Send return. It may be called more than once. The exec goes on.
func (s *AttachStream) Close() { s.cancel() }
