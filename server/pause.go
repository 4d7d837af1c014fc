package server

import (
	"cmp"
	"context"
	"time"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/fleet"
	"github.com/agbox-dev/agbox/server/spec"
)

func (s *Server) PauseSandbox(ctx context.Context, req *agboxv1.PauseSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	return s.request(ctx, req.SandboxId, lifecycle.Pause{Reason: lifecycle.ReasonPauseRequested})
}

func (s *Server) UnpauseSandbox(ctx context.Context, req *agboxv1.UnpauseSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	return s.request(ctx, req.SandboxId, lifecycle.Unpause{})
}

func (s *Server) DrainSandbox(ctx context.Context, req *agboxv1.DrainSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	if err := spec.ValidateDuration("deadline", req.Deadline); err != nil {
		return nil, err
	}
	var drain lifecycle.Drain
	if req.Deadline != nil {
		drain.Until = time.Now().Add(req.Deadline.AsDuration())
	}
	return s.request(ctx, req.SandboxId, drain)
}

func (s *Server) ExtendSandbox(ctx context.Context, req *agboxv1.ExtendSandboxRequest) (*agboxv1.ExtendSandboxResponse, error) {
	if err := cmp.Or(spec.ValidateDuration("max_duration", req.MaxDuration), spec.ValidateDuration("idle_ttl", req.IdleTtl)); err != nil {
		return nil, err
	}
	var extend lifecycle.Extend
	if req.MaxDuration != nil {
		extend.ExpiresAt = &time.Time{}
		if d := req.MaxDuration.AsDuration(); d > 0 {
			*extend.ExpiresAt = time.Now().Add(d)
		}
	}
	if req.IdleTtl != nil {
		ttl := req.IdleTtl.AsDuration()
		extend.IdleTTL = &ttl
	}
	if _, err := s.system.Request(ctx, req.SandboxId, extend); err != nil {
		return nil, err
	}
	view, err := s.system.Sandbox(req.SandboxId)
	if err != nil {
		return nil, err
	}
	return &agboxv1.ExtendSandboxResponse{Sandbox: fleet.Handle(view)}, nil
}
