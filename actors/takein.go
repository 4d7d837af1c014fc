package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/orphan"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// ErrOrphanCount: there are more or fewer sandboxes to be removed than was said.
var ErrOrphanCount = errors.New("actors: not as many sandboxes as was said")

// Orphan is something of a sandbox in the runtime, or its logs, though no such sandbox was ever accepted.
type Orphan = orphan.Orphan

// Orphans lists them by id, as the last comparison with the runtime found them.
func (s *System) Orphans() ([]Orphan, error) { return orphan.List(s.db) }

func (s *System) sweep() *orphan.Sweep {
	return &orphan.Sweep{DB: s.db, Runtime: s.runtime, Now: s.now, Log: s.log, Known: func(id string) (known, deleted bool) {
		e, known := s.registry.get(id)
		if !known {
			return false, false
		}
		state, err := e.load(s.db)
		return true, err == nil && state.Phase == lifecycle.Deleted
	}}
}

// settleOrphans does what the configuration says about what the database does not know, before anything else looks at it.
func (s *System) settleOrphans(ctx context.Context) error {
	if !s.config.Adopt && s.config.Forget == nil {
		return nil
	}
	inventory, err := s.runtime.Inventory(ctx)
	if err != nil {
		return err
	}
	sweep := s.sweep()
	strange, err := sweep.Strange(inventory)
	if err != nil {
		return err
	}
	if s.config.Adopt {
		return s.takeIn(ctx, strange)
	}
	if *s.config.Forget != len(strange) {
		return fmt.Errorf("%w: there are %d that the database does not know, and %d were to be removed: nothing was: %v",
			ErrOrphanCount, len(strange), *s.config.Forget, strange)
	}
	for _, id := range strange {
		_, objects := inventory.Objects[id]
		err = errors.Join(err, sweep.Discard(ctx, id, objects, "agboxd --forget"))
	}
	return err
}

// takeIn makes sandboxes of those that the database does not know, and takes in the execs that it does not know of any. What
// cannot be taken in stays as it is.
func (s *System) takeIn(ctx context.Context, strange []string) error {
	for _, e := range s.registry.all() {
		if state, err := e.load(s.db); err == nil && state.Phase != lifecycle.Deleted {
			if err := s.takeInExecs(ctx, e); err != nil {
				return err
			}
		}
	}
	for _, id := range strange {
		found, err := s.runtime.Describe(ctx, id)
		if err == nil {
			err = s.takeInSandbox(ctx, id, found)
		}
		if err != nil {
			s.log.Error("a sandbox that the database does not know cannot be taken in", slog.String("sandbox_id", id), slog.Any("error", err))
			continue
		}
		s.log.Warn("audit: sandbox taken in", slog.String("sandbox_id", id), slog.String("state", found.Phase.String()))
	}
	return nil
}

func (s *System) takeInSandbox(ctx context.Context, id string, found runtime.Found) error {
	command := lifecycle.Recover{Phase: found.Phase, Code: found.Code, Message: found.Message, CreatedAt: found.CreatedAt, Ports: found.Ports}
	for _, service := range found.Spec.GetOptionalServices() {
		command.Services = append(command.Services, service.Name)
	}
	gone := found.Phase == lifecycle.None
	if gone {
		command.Phase, command.Code, command.Message = lifecycle.Failed, runtime.CodeContainerNotRunning, "nothing is left of it but its logs"
	}
	e := newEntry(id, found.Spec)
	e.state.Store(new(lifecycle.New(id, nil)))
	s.adopt(e)
	s.registry.add(e)
	r := newRequest(command)
	r.create = found.Spec
	if err := s.ask(ctx, e, r).err; err != nil {
		s.discard(e)
		return err
	}
	if err := s.takeInExecs(ctx, e); err != nil || !gone {
		return err
	}
	return s.ask(ctx, e, newRequest(lifecycle.Delete{Reason: lifecycle.ReasonNothingLeft})).err
}

func (s *System) takeInExecs(ctx context.Context, e *entry) error {
	ids, err := s.runtime.ExecIDs(e.id)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := s.db.Exec(e.id, id); err == nil {
			continue
		}
		command := lifecycle.RecoverExec{ExecID: id}
		if result, found := s.runtime.ExecRecord(e.id, id); found {
			command.Result = &result
		}
		r := newRequest(command)
		r.exec = &agboxv1.CreateExecRequest{SandboxId: e.id, ExecId: id}
		if err := s.ask(ctx, e, r).err; err != nil && !errors.Is(err, persist.ErrExecIDTaken) {
			return err
		}
	}
	return nil
}
