package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Create accepts a sandbox. The spec must be valid and complete, and is kept. It fails with ErrSandboxIDTaken,
// runtime.ErrConflict, or an error of persist; then nothing was created. A caller who does not know what became of an
// earlier try repeats it with a requestID: then the same id and spec are that try, and no error.
func (s *System) Create(ctx context.Context, id string, spec *agboxv1.CreateSpec, requestID string) (View, error) {
	return s.create(ctx, id, spec, origin{requestID: requestID})
}

func (s *System) create(ctx context.Context, id string, spec *agboxv1.CreateSpec, from origin) (View, error) {
	if s.closing.Load() {
		return View{}, ErrShuttingDown
	}
	earlier, release, err := s.registry.claim(ctx, id, spec, s.config.MaxSandboxes)
	if err != nil {
		return View{}, err
	}
	if earlier != nil {
		return s.repeated(ctx, earlier, spec, from.requestID)
	}
	e := newEntry(id, spec)
	e.requestID = from.requestID
	if e.madeFrom = cmp.Or(from.snapshotID, from.forkedFrom); e.madeFrom == "" {
		s.takeWarm(e)
	}
	if e.place == "" { // what was made ahead has a name of its own
		if err := s.usable(ctx, id, spec, from); err != nil {
			release()
			return View{}, err
		}
	}
	e.state.Store(new(lifecycle.New(id, nil)))
	s.adopt(e)
	s.registry.add(e)
	if e.place != "" {
		s.runtime.Reserve(id, e.place)
	}
	r := newRequest(lifecycle.Create{Lazy: spec.GetLazy(), Warm: e.place != "" && runtime.ReadyAtOnce(spec), ForkedFrom: from.forkedFrom})
	r.create, r.requestID, r.place = spec, from.requestID, e.place
	a := s.ask(ctx, e, r)
	if ctx.Err() != nil && errors.Is(a.err, context.Cause(ctx)) { // nobody waits any more, and it may come to nothing yet
		s.work.Go(func() {
			defer release()
			select {
			case late := <-r.answer:
				_ = s.undoCreate(e, late.err)
			case <-s.working.Done():
			}
		})
		return View{}, a.err
	}
	defer release()
	if err := s.undoCreate(e, a.err); err != nil {
		return View{}, err
	}
	return s.view(e, a.state), nil
}

// undoCreate leaves nothing of a create that failed. It returns err for the caller.
func (s *System) undoCreate(e *entry, err error) error {
	if err == nil || errors.Is(err, runtime.ErrOutcomeUnknown) && !s.neverRecorded(e.id, err) {
		s.settleWarm(e, true)
		return err
	}
	if state := e.state.Load(); state != nil && state.Sequence > 0 && !errors.Is(err, persist.ErrSandboxIDTaken) { // it is in the log all the same
		s.settleWarm(e, true)
		return fmt.Errorf("%w: %s: %w", runtime.ErrOutcomeUnknown, e.id, err)
	}
	s.discard(e)
	if errors.Is(err, persist.ErrPlaceTaken) && e.taken != nil { // it is another's, and never handed out again
		s.runtime.Release(e.id, e.taken.ID)
		s.pool.Used(*e.taken)
		e.taken = nil
	}
	s.settleWarm(e, false)
	if errors.Is(err, persist.ErrSandboxIDTaken) {
		return fmt.Errorf("%w: %s", ErrSandboxIDTaken, e.id)
	}
	return err
}

// neverRecorded reports whether a create whose actor crashed left no trace, so that its id is free again.
func (s *System) neverRecorded(id string, err error) bool {
	if !errors.Is(err, errCrashed) {
		return false
	}
	_, _, missing := s.db.Bounds(id)
	return errors.Is(missing, persist.ErrNoSandbox)
}

// repeated answers a create whose id is in use: with the sandbox when this is the request that made it.
func (s *System) repeated(ctx context.Context, e *entry, spec *agboxv1.CreateSpec, requestID string) (View, error) {
	taken := fmt.Errorf("%w: %s", ErrSandboxIDTaken, e.id)
	if !sameKey(e.requestID, requestID) || !proto.Equal(e.spec, spec) {
		return View{}, taken
	}
	// What became of the first try may not be known: its sandbox answers after it.
	if err := s.request(ctx, e, newRequest(lifecycle.Create{})).err; !errors.Is(err, lifecycle.ErrAlreadyExists) {
		return View{}, cmp.Or(err, taken)
	}
	return s.Sandbox(e.id)
}

// sameKey reports whether a request with the idempotency key again can be the one with first. One without a key can be repeated
// with any.
func sameKey(first, again string) bool {
	return again != "" && (first == "" || first == again)
}
