package server

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/google/uuid"

	"github.com/agbox-dev/agbox/actors"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

// reasonTerminalSize: a terminal without rows or columns, or with more than the kernel can tell.
const reasonTerminalSize = "TERMINAL_SIZE_INVALID"

func (s *Server) CreateExec(ctx context.Context, req *agboxv1.CreateExecRequest) (*agboxv1.CreateExecResponse, error) {
	err := spec.ValidateExec(req)
	if err == nil && req.Tty != nil {
		err = validSize("tty", req.Tty)
	}
	if err != nil {
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
	owner, err := s.system.ExecOwner(req.ExecId)
	if err != nil {
		return nil, err
	}
	exec, err := s.db.Exec(owner, req.ExecId)
	if err != nil {
		return nil, err
	}
	return &agboxv1.GetExecResponse{Exec: s.status(exec)}, nil
}

// ListActiveExecs lists the running execs of one sandbox, or of all, newest first.
func (s *Server) ListActiveExecs(_ context.Context, req *agboxv1.ListActiveExecsRequest) (*agboxv1.ListActiveExecsResponse, error) {
	var views []actors.View
	var err error
	if req.SandboxId != nil {
		views = make([]actors.View, 1)
		views[0], err = s.system.Sandbox(req.GetSandboxId())
	} else {
		views, err = s.matching(nil)
	}
	if err != nil {
		return nil, err
	}
	var list execList
	for _, view := range views {
		ids := runningIDs(view.State)
		slices.Reverse(ids)
		for _, id := range ids {
			exec, err := s.db.Exec(view.State.SandboxID, id)
			if err != nil {
				return nil, err
			}
			if exec.End == nil { // it may have ended since the list was taken
				list.add(s.status(exec))
			}
		}
	}
	return &agboxv1.ListActiveExecsResponse{Execs: list.execs}, nil
}

func validSize(field string, size *agboxv1.TerminalSize) error {
	for _, side := range []struct {
		name  string
		value uint32
	}{{"rows", size.GetRows()}, {"columns", size.GetColumns()}} {
		if side.value < 1 || side.value > math.MaxUint16 {
			return &spec.Error{Reason: reasonTerminalSize, Field: field + "." + side.name,
				Message: fmt.Sprintf("a terminal has no %d %s: give 1 to %d", side.value, side.name, math.MaxUint16)}
		}
	}
	return nil
}
