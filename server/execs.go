package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/fleet"
	"github.com/agbox-dev/agbox/server/spec"
)

// How many execs one ListExecs returns at most, unless it asks for more, and how many it can ask for.
const (
	defaultExecs = 1_000
	maxExecs     = 10_000
)

const reasonLimitTooLarge = "LIMIT_TOO_LARGE"

func (s *Server) ListExecs(ctx context.Context, req *agboxv1.ListExecsRequest) (*agboxv1.ListExecsResponse, error) {
	if err := fleet.KnownStates("states", req.States); err != nil {
		return nil, err
	}
	if req.Limit > maxExecs {
		return nil, &spec.Error{Reason: reasonLimitTooLarge, Field: "limit",
			Message: fmt.Sprintf("%d execs are too many for one answer: ask for at most %d, or for those of one sandbox or state", req.Limit, maxExecs)}
	}
	if req.SandboxId != "" {
		if _, found := s.system.Spec(req.SandboxId); !found {
			return nil, persist.ErrNoSandbox
		}
	}
	names, err := s.db.NewestExecs(ctx, req.SandboxId, req.States, int(cmp.Or(req.Limit, defaultExecs)))
	if err != nil {
		return nil, err
	}
	var list execList
	for _, name := range names {
		exec, err := s.db.Exec(name.SandboxID, name.ExecID)
		if errors.Is(err, persist.ErrNoExec) {
			continue // its history went since
		} else if err != nil {
			return nil, err
		}
		if status := s.output.Status(exec); len(req.States) == 0 || slices.Contains(req.States, status.State) { // it may have ended since
			list.add(status)
		}
	}
	return &agboxv1.ListExecsResponse{Execs: list.execs}, nil
}
