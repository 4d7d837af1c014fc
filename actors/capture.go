package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	journalv1 "github.com/agbox-dev/agbox/proto/agbox/journal/v1"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// capture is somebody who waits for a snapshot of a sandbox that the log announces, or for a fork.
type capture struct {
	ctx    context.Context
	cancel context.CancelFunc
	want   runtime.Snapshot
	// fork is the spec of the sandbox that is to be accepted once the snapshot is there, nil for none.
	fork   *agboxv1.CreateSpec
	taken  atomic.Bool   // by the sandbox, which makes it, or by the asker, who has left
	answer chan error    // one slot: how it ended, once the log tells
	worked chan struct{} // closed when nothing of it goes on any more; then made, view and err tell how it came out
	made   runtime.Snapshot
	view   View
	err    error
}

// snapshotEnded comes back from every snapshot.
type snapshotEnded struct {
	token uint64
	ended lifecycle.SnapshotEnded
}

// errNoAsker: who asked for a snapshot has left before its turn came.
var errNoAsker = errors.New("nobody waits for it any more")

// capture announces the snapshot and waits until the log tells its end.
func (s *System) capture(ctx context.Context, want runtime.Snapshot, fork *agboxv1.CreateSpec) (*capture, error) {
	e, err := s.entry(want.SandboxId)
	if err != nil {
		return nil, err
	}
	m := &capture{want: want, fork: fork, answer: make(chan error, 1), worked: make(chan struct{})}
	m.ctx, m.cancel = context.WithCancel(ctx)
	defer m.cancel()
	m.want.Spec = e.spec
	r := newRequest(lifecycle.Snapshot{ID: want.SnapshotId, Image: s.runtime.SnapshotImage(want.SnapshotId), ForkID: want.ForkID})
	r.capture = m
	want.Tell("waiting", 0)
	if err = s.request(ctx, e, r).err; err == nil {
		select {
		case err = <-m.answer:
		case <-e.gone:
			err = fmt.Errorf("%w: %s", ErrNotFound, e.id)
		case <-s.ended:
			err = fmt.Errorf("%w: %s", runtime.ErrOutcomeUnknown, e.id)
		case <-ctx.Done():
			err = fmt.Errorf("sandbox %s is busy: %w", e.id, context.Cause(ctx))
		}
	}
	if !m.taken.Swap(true) {
		return m, err
	}
	if err != nil {
		m.cancel()
	}
	<-m.worked
	if ctx.Err() != nil && errors.Is(m.err, context.Canceled) {
		return m, fmt.Errorf("snapshot %s was given up: %w", want.SnapshotId, context.Cause(ctx))
	}
	return m, cmp.Or(m.err, err)
}

// capture begins with the snapshot whose turn it is. One that nobody here waits for is of an earlier daemon, or of an actor that
// has crashed, and is settled.
func (s *sandbox) capture(self *actor.PID) {
	id := s.state.NextSnapshot()
	if id == "" {
		return
	}
	system, e, pending, m := s.system, s.entry, s.state.Snapshots[id], s.captures[id]
	ctx, cancel := context.WithCancel(system.working)
	e.operation = &operation{token: system.tokens.Add(1), snapshot: true, cancel: cancel}
	message := &snapshotEnded{token: e.operation.token, ended: lifecycle.SnapshotEnded{ID: id}}
	end := func(err error) {
		cancel()
		if err != nil {
			message.ended.Code, message.ended.Message = cmp.Or(errorCode(err), lifecycle.CodeSnapshotFailed), err.Error()
			if errors.Is(err, context.Canceled) || errors.Is(err, errNoAsker) || errors.Is(err, errInterrupted) {
				message.ended.Code = lifecycle.CodeSnapshotInterrupted
			}
		}
		system.actors.Root.Send(self, message)
	}
	if m == nil || m.taken.Swap(true) {
		left := m != nil
		system.work.Go(func() {
			err := errNoAsker
			defer func() { end(err) }()
			if !left {
				err = system.guard("settling a snapshot", e.id, func() error { return system.settleSnapshot(ctx, id, pending) })
			}
		})
		return
	}
	state := s.state
	_, unfit := lifecycle.Decide(state, system.policy(e.spec), lifecycle.Snapshot{}, system.now())
	system.work.Go(func() {
		defer context.AfterFunc(m.ctx, cancel)()
		err := unfit
		if err == nil {
			err = system.guard("snapshot", e.id, func() error { return system.makeSnapshot(ctx, m) })
		}
		if errors.Is(err, runtime.ErrNothingToKeep) {
			err = lifecycle.NothingToKeep(state, strings.TrimPrefix(err.Error(), runtime.ErrNothingToKeep.Error()+": "))
		}
		message.ended.SizeBytes = m.made.GetSizeBytes()
		m.err = err
		close(m.worked)
		end(err)
	})
}

// guard returns what do does, or its panic, audited.
func (s *System) guard(what, id string, do func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = s.panicked(what, id, reason)
		}
	}()
	return do()
}

// makeSnapshot makes the snapshot and, for a fork, has that accepted, or leaves nothing.
func (s *System) makeSnapshot(ctx context.Context, m *capture) (err error) {
	id := m.want.SnapshotId
	if err := s.registry.kept(ctx, s.runtime.SnapshotImage(id)); err != nil {
		return err
	}
	if m.fork == nil {
		m.made, err = s.runtime.CreateSnapshot(ctx, m.want)
		return err
	}
	if err := s.dropSnapshot(ctx, id); err != nil { // of a fork with this id that came to nothing
		return err
	}
	if m.made, err = s.runtime.CreateSnapshot(ctx, m.want); err != nil {
		return err
	}
	// Whoever leaves now leaves a fork that is whole.
	m.view, err = s.create(s.working, m.want.ForkID, m.fork, origin{requestID: m.want.RequestID, forkedFrom: m.want.SandboxId})
	if errors.Is(err, runtime.ErrOutcomeUnknown) && s.working.Err() == nil { // its actor crashed; what the log has is so
		m.view, err = s.Sandbox(m.want.ForkID)
	}
	if err != nil && s.working.Err() == nil {
		if undone := s.dropSnapshot(s.working, id); undone != nil {
			s.log.Warn("the image of a fork that was refused stays until the next start", slog.String("snapshot_id", id), slog.Any("error", undone))
		}
	}
	return err
}

// dropSnapshot deletes the snapshot if it is there.
func (s *System) dropSnapshot(ctx context.Context, id string) error {
	err := s.runtime.DeleteSnapshot(ctx, id)
	if errors.Is(err, runtime.ErrSnapshotNotFound) {
		return nil
	}
	return err
}

// errInterrupted: the daemon, or the sandbox's actor, ended while a snapshot was made.
var errInterrupted = errors.New("agboxd ended, or had to give it up, while it was made: nothing of it is left, ask again")

// settleSnapshot finds out what became of a snapshot: nil, it is whole, and where it is that of a fork, that was accepted. Otherwise
// nothing of it stays.
func (s *System) settleSnapshot(ctx context.Context, id string, pending *journalv1.PendingSnapshot) error {
	return s.retryWhileUnreachable(ctx, func() error {
		if pending.ForkId != "" {
			if fork, accepted := s.Spec(pending.ForkId); accepted && fork.GetImage() == pending.Image {
				return nil
			}
			return cmp.Or(s.dropSnapshot(ctx, id), errInterrupted)
		}
		_, err := s.runtime.Snapshot(ctx, id)
		if errors.Is(err, runtime.ErrSnapshotNotFound) {
			return errInterrupted
		}
		return err
	})
}

// snapshotEnded records how the snapshot came out and, when that is durable, answers.
func (s *sandbox) snapshotEnded(c actor.Context, m *snapshotEnded) {
	op := s.entry.operation
	if s.system.working.Err() != nil || op == nil || m.token != op.token {
		return // where the daemon ends, the next start settles it
	}
	op.over = true
	if !op.abandoned {
		st := s.fact(c.Self(), m, m.ended)
		for rest := []*step{st}; len(rest) > 0; {
			rest = s.record(c, rest)
		}
		if st.err != nil {
			st.done(st.err)
			return
		}
	}
	s.entry.operation = nil
	s.act(c)
}

// captured answers whoever waits for a snapshot whose end is in the log.
func (s *sandbox) captured(ended *agboxv1.SnapshotEventDetails) {
	m := s.captures[ended.GetSnapshotId()]
	if m == nil {
		return
	}
	delete(s.captures, ended.GetSnapshotId())
	if ended.GetErrorCode() == "" {
		m.answer <- nil
		return
	}
	m.answer <- &lifecycle.Refusal{Kind: lifecycle.ErrInvalidState, Message: fmt.Sprintf("cannot snapshot sandbox %s: %s", s.entry.id, ended.GetErrorMessage())}
}

// dismissCaptures answers those who wait for snapshots.
func (s *sandbox) dismissCaptures(err error) {
	for id, m := range s.captures {
		delete(s.captures, id)
		m.answer <- err
	}
}
