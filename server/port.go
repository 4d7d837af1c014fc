package server

import (
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/refusal"
	"github.com/agbox-dev/agbox/server/tunnel"
)

const (
	// reasonPortInvalid: a port that is none, or a first message that names none.
	reasonPortInvalid = "PORT_INVALID"
	// reasonPortClosed: nothing listens there.
	reasonPortClosed = "PORT_CLOSED"
)

// DialPort carries a connection to a port of a sandbox. A sandbox that is paused keeps it, one that ends breaks it.
func (s *Server) DialPort(stream grpc.BidiStreamingServer[agboxv1.DialPortRequest, agboxv1.DialPortResponse]) error {
	messages := tunnel.Receive(stream, &s.apart)
	first, err := messages.First()
	if err != nil {
		return err
	}
	id, port := first.SandboxId, first.Port
	if port == 0 || port > 65535 {
		return refusal.New(codes.InvalidArgument, reasonPortInvalid, "port", "%d is no port: the first message names one from 1 to 65535", port)
	}
	release, err := s.system.Connect(stream.Context(), id)
	if err != nil {
		return err
	}
	defer release()
	ctx, end := s.whileState(stream.Context(), id, func(state lifecycle.State) error {
		if !state.Up() || state.Operation == lifecycle.Stopping || state.Operation == lifecycle.Killing {
			return unreachable(state, "the connection has ended; connect again once it runs")
		}
		return nil
	})
	defer end()
	conn, err := s.runtime.Dial(ctx, id, uint16(port))
	switch {
	case errors.Is(err, runtime.ErrPortClosed):
		return refusal.New(codes.FailedPrecondition, reasonPortClosed, "port",
			"nothing listens on port %d of sandbox %s: start what is to answer there, on localhost or all addresses, and connect again", port, id)
	case errors.Is(err, runtime.ErrPortReset):
		return tunnel.Reset()
	case err != nil:
		return because(ctx, fmt.Errorf("port %d of sandbox %s: %w", port, id, err))
	}
	if err := tunnel.Carry(ctx, messages, conn); err != nil {
		return because(ctx, err)
	}
	return nil
}
