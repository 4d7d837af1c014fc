package sdktest

import (
	"context"
	"slices"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// HoldSandbox holds until the client leaves, or until the sandbox is detached or DELETED.
func (d *Daemon) HoldSandbox(req *agboxv1.HoldSandboxRequest, stream grpc.ServerStreamingServer[agboxv1.HoldSandboxResponse]) error {
	d.mu.Lock()
	s, err := d.find("HoldSandbox", req.GetSandboxId())
	if err != nil {
		d.mu.Unlock()
		return err
	}
	handle := proto.CloneOf(s.handle)
	d.mu.Unlock()
	if err := stream.Send(&agboxv1.HoldSandboxResponse{Sandbox: handle}); err != nil {
		return err
	}
	for {
		d.mu.Lock()
		over := s.handle.State == deleted || slices.ContainsFunc(s.events, func(e *agboxv1.SandboxEvent) bool {
			return e.EventType == agboxv1.EventType_SANDBOX_DETACHED
		})
		changed := d.changed
		d.mu.Unlock()
		if over {
			return nil
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// DetachSandbox tells that the sandbox is detached.
func (d *Daemon) DetachSandbox(_ context.Context, req *agboxv1.DetachSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.find("DetachSandbox", req.GetSandboxId())
	if err != nil {
		return nil, err
	}
	d.append(s, phase(agboxv1.EventType_SANDBOX_DETACHED, nil))
	return &agboxv1.AcceptedResponse{Accepted: true}, nil
}
