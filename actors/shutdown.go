package actors

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
)

// ShutdownPolicy is what becomes of sandboxes when the daemon ends.
type ShutdownPolicy string

const (
	// KeepSandboxes leaves them running; the next start takes them over. The zero value means the same.
	KeepSandboxes ShutdownPolicy = "keep"
	// StopSandboxes stops those that run.
	StopSandboxes ShutdownPolicy = "stop"
	// DeleteSandboxes deletes all.
	DeleteSandboxes ShutdownPolicy = "delete"
)

// Valid reports whether it is one of the policies above.
func (p ShutdownPolicy) Valid() bool {
	return p == KeepSandboxes || p == StopSandboxes || p == DeleteSandboxes
}

// policyTime bounds stopping or deleting everything when the daemon ends. What is not done by then is carried on
// at the next start, which the log has announced.
const policyTime = 30 * time.Second

// drain waits for the goroutines, but not for a call to an engine that hangs.
func (s *System) drain() {
	drained := make(chan struct{})
	go func() {
		s.work.Wait()
		close(drained)
	}()
	limit := time.NewTimer(shutdownGrace)
	defer limit.Stop()
	select {
	case <-drained:
	case <-limit.C:
		s.log.Warn("a call to the engine does not end and is given up")
	}
}

// shutdownGrace is how long Shutdown lets operations on the runtime end by themselves.
const shutdownGrace = 5 * time.Second

// Shutdown refuses new requests, lets operations end for a moment, then lets go of them: their sandboxes
// carry on at the next start. Running commands go on in their sandboxes. It returns when no goroutine of the
// system is left, or when ctx ends. It may be called more than once.
func (s *System) Shutdown(ctx context.Context) {
	s.once.Do(func() {
		s.closing.Store(true)
		s.KeepLeases()
		s.pool.Stop(ctx)
		s.applyPolicy(ctx)
		s.settle(ctx)
		s.abandon()
		for _, name := range []string{nameRouter, nameReconciler, nameJanitor, nameSupervisor} {
			pid := actor.NewPID(s.actors.Address(), name)
			if err := s.actors.Root.StopFuture(pid).Wait(); err != nil {
				s.log.Warn("actor did not end in time", slog.String("actor", name), slog.Any("error", err))
			}
		}
		s.drain()
		close(s.ended)
		s.actors.Shutdown()
	})
}

// settle waits for the operations that run, for a moment, and keeps new ones from starting.
func (s *System) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, shutdownGrace)
	defer cancel()
	var all []*settle
	for _, e := range s.registry.all() {
		if state := e.state.Load(); e.pid != nil && state != nil && state.Phase != lifecycle.Deleted {
			m := &settle{make(chan struct{})}
			s.actors.Root.Send(e.pid, m)
			all = append(all, m)
		}
	}
	for _, m := range all {
		select {
		case <-m.settled:
		case <-ctx.Done():
			return
		}
	}
}

// applyPolicy stops or deletes sandboxes and waits until that is done.
func (s *System) applyPolicy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, policyTime)
	defer cancel()
	var command lifecycle.Command
	switch s.config.OnShutdown {
	case StopSandboxes:
		command = lifecycle.Stop{Reason: lifecycle.ReasonStopRequested}
	case DeleteSandboxes:
		command = lifecycle.Delete{Reason: lifecycle.ReasonDeleteRequested}
	default:
		return
	}
	var group sync.WaitGroup
	for _, e := range s.registry.all() {
		if state, err := e.load(s.db); err != nil || state.Phase == lifecycle.Deleted {
			continue
		}
		group.Go(func() {
			if s.request(ctx, e, newRequest(command)).err == nil {
				s.awaitRest(ctx, e)
			}
		})
	}
	group.Wait()
}

// awaitRest returns when the sandbox has no operation in progress.
func (s *System) awaitRest(ctx context.Context, e *entry) {
	for {
		changed := s.db.Changed(e.id)
		if state, err := replay(s.db, e.id); err != nil || state.Operation == lifecycle.NoOperation {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
