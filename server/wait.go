package server

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/fleet"
	"github.com/agbox-dev/agbox/server/spec"
)

// WaitSandbox looks at the sandbox now and after each change. A state that passes at once may not be seen.
func (s *Server) WaitSandbox(ctx context.Context, req *agboxv1.WaitSandboxRequest) (*agboxv1.WaitSandboxResponse, error) {
	if err := fleet.KnownStates("states", req.States); err != nil {
		return nil, err
	}
	view, err := s.system.Sandbox(req.SandboxId)
	if err != nil {
		return nil, err
	}
	reached := false
	err = s.until(ctx, req.SandboxId, req.Timeout, func() (bool, error) {
		now, err := s.system.Sandbox(req.SandboxId)
		switch {
		case errors.Is(err, actors.ErrNotFound): // only the history of a DELETED sandbox goes
			view.State.Phase, view.State.Operation = lifecycle.Deleted, lifecycle.NoOperation
		case err != nil:
			return false, err
		default:
			view = now
		}
		reached = slices.Contains(req.States, view.State.Phase) ||
			len(req.States) == 0 && view.State.Operation == lifecycle.NoOperation
		return reached || outOfReach(view.State.Phase, req.States), nil
	})
	if err != nil {
		return nil, err
	}
	return &agboxv1.WaitSandboxResponse{Sandbox: fleet.Handle(view), Reached: reached}, nil
}

// outOfReach reports whether a sandbox in this state gets to none of those wanted, whatever anybody asks for.
func outOfReach(phase lifecycle.Phase, wanted []agboxv1.SandboxState) bool {
	var ahead []lifecycle.Phase
	switch phase {
	case lifecycle.Failed, lifecycle.Deleting:
		ahead = []lifecycle.Phase{lifecycle.Failed, lifecycle.Deleting, lifecycle.Deleted}
	case lifecycle.Deleted:
	default:
		return false
	}
	return len(wanted) > 0 && !slices.ContainsFunc(wanted, func(state lifecycle.Phase) bool { return slices.Contains(ahead, state) })
}

func (s *Server) WaitExec(ctx context.Context, req *agboxv1.WaitExecRequest) (*agboxv1.WaitExecResponse, error) {
	owner, err := s.system.ExecOwner(req.ExecId)
	if err != nil {
		return nil, err
	}
	response := &agboxv1.WaitExecResponse{}
	err = s.until(ctx, owner, req.Timeout, func() (bool, error) {
		exec, err := s.db.Exec(owner, req.ExecId)
		if err != nil {
			return false, err
		}
		response.Exec, response.Ended = s.output.Status(exec), exec.End != nil
		return response.Ended, nil
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

// until has look look now and after each change of the sandbox's history. It returns nil when look says that it is
// done, or when the timeout is over.
func (s *Server) until(ctx context.Context, sandboxID string, timeout *durationpb.Duration, look func() (done bool, err error)) error {
	ctx, end := s.whileServing(ctx)
	defer end()
	waiting := ctx
	if timeout != nil {
		if err := spec.ValidateDuration("timeout", timeout); err != nil {
			return err
		}
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, timeout.AsDuration())
		defer cancel()
	}
	for {
		changed := s.db.Changed(sandboxID)
		if done, err := look(); done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-waiting.Done():
			return because(ctx, nil)
		}
	}
}
