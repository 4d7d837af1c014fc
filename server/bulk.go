package server

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/fleet"
	"github.com/agbox-dev/agbox/server/refusal"
	"github.com/agbox-dev/agbox/server/spec"
)

// bulkAtOnce is how many sandboxes one call asks at once. Each answers when its log has it, and the log takes those that
// come together in one commit.
const bulkAtOnce = 64

// maxAcceptedIDs bounds the ids in a refusal, in bytes: a status is cut beyond maxStatus, and no id may be.
const maxAcceptedIDs = 768

func (s *Server) StopSandboxes(ctx context.Context, req *agboxv1.StopSandboxesRequest) (*agboxv1.StopSandboxesResponse, error) {
	if err := spec.ValidateDuration("grace", req.Grace); err != nil {
		return nil, err
	}
	stop := lifecycle.Stop{Reason: lifecycle.ReasonStopRequested, Force: req.Force}
	if req.Grace != nil {
		grace := req.Grace.AsDuration()
		stop.Grace = &grace
	}
	ids, sequences, err := s.bulk(ctx, req.LabelSelector, req.States, stop)
	if err != nil {
		return nil, err
	}
	return &agboxv1.StopSandboxesResponse{SandboxIds: ids, EventSequences: &agboxv1.EventSequences{Values: sequences}}, nil
}

func (s *Server) ResumeSandboxes(ctx context.Context, req *agboxv1.ResumeSandboxesRequest) (*agboxv1.ResumeSandboxesResponse, error) {
	ids, sequences, err := s.bulk(ctx, req.LabelSelector, req.States, lifecycle.Resume{})
	if err != nil {
		return nil, err
	}
	return &agboxv1.ResumeSandboxesResponse{SandboxIds: ids, EventSequences: &agboxv1.EventSequences{Values: sequences}}, nil
}

// bulk asks it of every sandbox with the labels and in one of the states, of none without labels, and returns the ids of
// those that accepted, newest first, each with the sequence that System.Request returns.
func (s *Server) bulk(ctx context.Context, labels map[string]string, states []lifecycle.Phase, command lifecycle.Command) (ids []string, sequences []uint64, err error) {
	if err := cmp.Or(spec.ValidateSelector("label_selector", labels), fleet.KnownStates("states", states)); err != nil {
		return nil, nil, err
	}
	views, err := s.fleet.Matching(labels, states...)
	if err != nil {
		return nil, nil, err
	}
	if len(states) == 0 {
		return s.askEach(ctx, views, command, nil)
	}
	return s.askEach(ctx, views, command, func(v actors.View) bool { return fleet.InOneOf(v, states) })
}

// askEach asks it of each of the sandboxes that is still wanted when its turn comes, and returns the ids of those that
// accepted, in the order given. One whose state it does not fit, or who has it behind it, is left out. Where wanted is nil
// all are, whatever they do meanwhile; otherwise one that changes its state between the look and the request is left out.
func (s *Server) askEach(ctx context.Context, views []actors.View, command lifecycle.Command, wanted func(actors.View) bool) ([]string, []uint64, error) {
	ids := make([]string, len(views))
	for i, view := range views {
		ids[i] = view.State.SandboxID
	}
	return s.each(ids, func(id string) (uint64, error) { return s.askOne(ctx, id, command, wanted) })
}

// each asks bulkAtOnce sandboxes at a time. The error is of the first that could not be asked; all others were, and it
// tells which accepted.
func (s *Server) each(ids []string, ask func(id string) (accepted uint64, err error)) (done []string, sequences []uint64, err error) {
	accepted, errs := make([]uint64, len(ids)), make([]error, len(ids))
	var group errgroup.Group
	group.SetLimit(bulkAtOnce)
	for i, id := range ids {
		group.Go(func() error {
			accepted[i], errs[i] = ask(id)
			return nil
		})
	}
	_ = group.Wait() // errs has them all
	for i, id := range ids {
		if accepted[i] > 0 {
			done, sequences = append(done, id), append(sequences, accepted[i])
		}
	}
	failed := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if failed < 0 {
		return done, sequences, nil
	}
	return nil, nil, refusal.Concerning(errs[failed], "sandbox_id", ids[failed],
		"accepted_count", strconv.Itoa(len(done)), "accepted_sandbox_ids", firstIDs(done))
}

func (s *Server) askOne(ctx context.Context, id string, command lifecycle.Command, wanted func(actors.View) bool) (accepted uint64, err error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	view, err := s.system.Sandbox(id)
	if err == nil {
		if wanted != nil && !wanted(view) || !fits(view, command) {
			return 0, nil
		}
		if wanted != nil {
			command = lifecycle.IfUnchanged{Phase: view.State.Phase, Since: view.State.ChangedAt.AsTime(), Then: command}
		}
		accepted, err = s.system.Request(ctx, id, command)
	}
	if _, refused := errors.AsType[*lifecycle.Refusal](err); refused || errors.Is(err, actors.ErrNotFound) {
		return 0, nil
	}
	return accepted, err
}

// fits reports whether the command would change anything of the sandbox as it is now.
func fits(view actors.View, command lifecycle.Command) bool {
	events, err := lifecycle.Decide(view.State, lifecycle.Policy{Spec: view.Spec}, command, time.Now())
	return err == nil && len(events) > 0
}

// firstIDs joins as many ids with commas as may stand in a refusal.
func firstIDs(ids []string) string {
	text := strings.Join(ids, ",")
	if len(text) <= maxAcceptedIDs {
		return text
	}
	return text[:strings.LastIndexByte(text[:maxAcceptedIDs+1], ',')]
}
