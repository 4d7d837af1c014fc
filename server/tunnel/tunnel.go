// Package tunnel carries the bytes of a connection over a stream of calls.
package tunnel

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/refusal"
)

// chunk is how many bytes a message has at most.
const chunk = 32 << 10

// reasonReset: what listens in the sandbox has broken the connection.
const reasonReset = "PORT_RESET"

// Reset is for a connection that the sandbox broke.
func Reset() error {
	return refusal.New(codes.Aborted, reasonReset, "", "the connection was reset by what listens in the sandbox: connect again")
}

type stream = grpc.BidiStreamingServer[agboxv1.DialPortRequest, agboxv1.DialPortResponse]

// Messages are those of the client, which come one at a time: gRPC's flow control holds up one that sends more than is taken.
type Messages struct {
	stream stream
	next   chan received
}

type received struct {
	message *agboxv1.DialPortRequest
	err     error
}

// Receive begins to read. The goroutine, which owner waits for, ends with the stream.
func Receive(s stream, owner *sync.WaitGroup) *Messages {
	m := &Messages{stream: s, next: make(chan received)}
	owner.Go(func() {
		for {
			message, err := s.Recv()
			select {
			case m.next <- received{message, err}:
			case <-s.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	return m
}

// First waits for the first message.
func (m *Messages) First() (*agboxv1.DialPortRequest, error) {
	select {
	case r := <-m.next:
		if errors.Is(r.err, io.EOF) {
			return &agboxv1.DialPortRequest{}, nil
		}
		return r.message, r.err
	case <-m.stream.Context().Done():
		return nil, context.Cause(m.stream.Context())
	}
}

// Carry tells the client that it is connected, and returns when both sides have said their end, or one has broken off, or ctx has
// ended. It closes the connection.
func Carry(ctx context.Context, m *Messages, conn runtime.Connection) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel(nil)
	tasks.Go(func() { // the one who closes
		<-ctx.Done()
		conn.Close()
	})
	if err := m.stream.Send(&agboxv1.DialPortResponse{}); err != nil {
		return err
	}
	inward := make(chan error, 1)
	tasks.Go(func() {
		err := m.inward(ctx, conn)
		if err != nil {
			cancel(err)
		}
		inward <- err
	})
	if err := m.outward(conn); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	}
	return <-inward
}

// inward passes on what the client sends, until its end.
func (m *Messages) inward(ctx context.Context, conn runtime.Connection) error {
	for {
		var r received
		select {
		case r = <-m.next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if r.err != nil && !errors.Is(r.err, io.EOF) {
			return r.err
		}
		if len(r.message.GetData()) > 0 {
			if _, err := conn.Write(r.message.Data); err != nil {
				return Reset()
			}
		}
		if r.err != nil || r.message.End {
			if conn.CloseWrite() != nil {
				return Reset()
			}
			return nil
		}
	}
}

// outward passes on what comes out of the sandbox, until its end.
func (m *Messages) outward(conn runtime.Connection) error {
	buffer := make([]byte, chunk)
	for {
		n, err := conn.Read(buffer)
		if n > 0 {
			if err := m.stream.Send(&agboxv1.DialPortResponse{Data: buffer[:n]}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return m.stream.Send(&agboxv1.DialPortResponse{End: true})
		case err != nil:
			return Reset()
		}
	}
}
