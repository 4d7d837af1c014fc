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
	*Receiver[agboxv1.AttachExecResponse]
	sends grpc.BidiStreamingClient[agboxv1.AttachExecRequest, agboxv1.AttachExecResponse]
}

// AttachExec opens a stream that lives as long as ctx, at most. The first message to send is start. What the daemon
// refuses, Recv tells; it returns io.EOF after the message that is ended. Close must follow, lets a blocked Send return, and
// ends nothing in the sandbox.
func (c *Client) AttachExec(ctx context.Context) (*AttachStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.rpc.AttachExec(ctx)
	if err != nil {
		cancel()
		return nil, c.typed(err)
	}
	receiver := &Receiver[agboxv1.AttachExecResponse]{client: c, stream: stream, cancel: cancel}
	return &AttachStream{Receiver: receiver, sends: stream}, nil
}

// Send blocks while the daemon takes no more. io.EOF: the stream has ended, and Recv tells why.
func (s *AttachStream) Send(req *agboxv1.AttachExecRequest) error {
	err := s.sends.Send(req)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return s.client.typed(err)
}

// CloseSend says that nothing more is sent. Output goes on, and the exec's input stays open.
func (s *AttachStream) CloseSend() error { return s.client.typed(s.sends.CloseSend()) }
