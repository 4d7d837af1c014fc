package server

import (
	"context"
	"time"

	"google.golang.org/grpc"
)

// paced is for a handler that holds what others wait for as long as it sends: send sends a message, and ends ctx with errStalled where
// the client reads nothing for stallTime. What has the message then stays with the stream, until the handler has returned. end must be called.
func paced[T any](s *Server, ctx context.Context, stream grpc.ServerStreamingServer[T]) (_ context.Context, send func(*T) error, end func()) {
	ctx, stop := context.WithCancelCause(ctx)
	messages, sent := make(chan *T), make(chan error, 1)
	s.apart.Go(func() {
		for {
			select {
			case m := <-messages:
				sent <- stream.Send(m)
			case <-ctx.Done():
				return
			}
		}
	})
	send = func(m *T) error {
		defer time.AfterFunc(stallTime, func() { stop(errStalled) }).Stop()
		select {
		case messages <- m:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case err := <-sent:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return ctx, send, func() { stop(nil) }
}
