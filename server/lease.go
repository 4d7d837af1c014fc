package server

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/fleet"
)

// HoldSandbox holds until the client leaves, however that comes about: its connection is gone, then, and with it the
// stream. It ends by itself when there is nothing left to hold.
func (s *Server) HoldSandbox(req *agboxv1.HoldSandboxRequest, stream grpc.ServerStreamingServer[agboxv1.HoldSandboxResponse]) error {
	release, err := s.system.Hold(stream.Context(), req.SandboxId)
	if err != nil {
		return err
	}
	defer release()
	view, err := s.system.Sandbox(req.SandboxId)
	if err != nil {
		return err
	}
	if err := stream.Send(&agboxv1.HoldSandboxResponse{Sandbox: fleet.Handle(view)}); err != nil {
		return err
	}
	err = s.until(stream.Context(), req.SandboxId, nil, func() (bool, error) {
		now, err := s.system.Sandbox(req.SandboxId)
		if errors.Is(err, actors.ErrNotFound) {
			return true, nil
		}
		return now.State.Detached || now.State.Phase == lifecycle.Deleted, err
	})
	if err != nil {
		return err
	}
	return nil
}

func (s *Server) DetachSandbox(ctx context.Context, req *agboxv1.DetachSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	view, err := s.system.Sandbox(req.SandboxId)
	if err == nil && view.Spec.GetLease() == nil {
		err = actors.ErrNoLease
	}
	if err != nil {
		return nil, err
	}
	return s.request(ctx, req.SandboxId, lifecycle.Detach{})
}
