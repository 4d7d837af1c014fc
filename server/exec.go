package server

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/agbox-dev/agbox/actors"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/fleet"
	"github.com/agbox-dev/agbox/server/spec"
)

func (s *Server) CreateExec(ctx context.Context, req *agboxv1.CreateExecRequest) (*agboxv1.CreateExecResponse, error) {
	if err := spec.ValidateExec(req); err != nil {
		return nil, err
	}
	if err := s.config.Host.Ceilings.Bound(req); err != nil {
		return nil, err
	}
	req.ExecId = cmp.Or(req.ExecId, uuid.NewString())
	if err := s.system.StartExec(ctx, req, requestID(ctx)); err != nil {
		return nil, err
	}
	response := &agboxv1.CreateExecResponse{ExecId: req.ExecId}
	response.StdoutLogPath, response.StderrLogPath = s.runtime.ExecLogs(req.SandboxId, req.ExecId)
	return response, nil
}

func (s *Server) CancelExec(ctx context.Context, req *agboxv1.CancelExecRequest) (*agboxv1.AcceptedResponse, error) {
	if err := s.system.CancelExec(ctx, req.ExecId); err != nil {
		return nil, err
	}
	return &agboxv1.AcceptedResponse{Accepted: true}, nil
}

func (s *Server) GetExec(_ context.Context, req *agboxv1.GetExecRequest) (*agboxv1.GetExecResponse, error) {
	exec, err := s.output.Exec(req.ExecId)
	if err != nil {
		return nil, err
	}
	return &agboxv1.GetExecResponse{Exec: s.output.Status(exec)}, nil
}

// ListActiveExecs lists the running execs of one sandbox, or of all, newest first.
func (s *Server) ListActiveExecs(_ context.Context, req *agboxv1.ListActiveExecsRequest) (*agboxv1.ListActiveExecsResponse, error) {
	var views []actors.View
	var err error
	if req.SandboxId != nil {
		views = make([]actors.View, 1)
		views[0], err = s.system.Sandbox(req.GetSandboxId())
	} else {
		views, err = s.fleet.Matching(nil)
	}
	if err != nil {
		return nil, err
	}
	var list execList
	for _, view := range views {
		ids := fleet.RunningIDs(view.State)
		slices.Reverse(ids)
		for _, id := range ids {
			exec, err := s.db.Exec(view.State.SandboxID, id)
			if err != nil {
				return nil, err
			}
			if exec.End == nil { // it may have ended since the list was taken
				list.add(s.output.Status(exec))
			}
		}
	}
	return &agboxv1.ListActiveExecsResponse{Execs: list.execs}, nil
}
