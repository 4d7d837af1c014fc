package actors

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/pool"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// entry is what outlives a sandbox's actor: its name in the registry, the state that readers see, and the work that is
// under way.
type entry struct {
	id        string
	spec      *agboxv1.CreateSpec
	requestID string
	// place is that of the sandbox made ahead which this one took, "" for none; taken is that until it is settled, and miss why there is
	// none.
	place string
	taken *pool.Taken
	miss  string
	// madeFrom is the snapshot that it is made from, or the sandbox that it is a fork of, "" for none: nothing is made ahead of their
	// images, which would keep them from being deleted.
	madeFrom string
	pid      *actor.PID
	lease    users
	traffic  users
	// quarantine is why the sandbox was given up, nil while it is not.
	quarantine atomic.Pointer[string]
	// operation is the work that runs, nil when none does. It is the actor's: an incarnation finds that of the one before.
	operation *operation
	// gone is closed when the history is purged and nobody will answer any more.
	gone chan struct{}

	state   atomic.Pointer[lifecycle.State]
	loading sync.Mutex
}

func newEntry(id string, spec *agboxv1.CreateSpec) *entry {
	return &entry{id: id, spec: spec, lease: users{count: lifecycle.Users{Since: time.Now()}}, gone: make(chan struct{})}
}

// replayChunk bounds how many events are in memory at once while a log is folded.
const replayChunk = 1024

// load returns the sandbox's state, folding its log when nobody has done so yet.
func (e *entry) load(db *persist.DB) (lifecycle.State, error) {
	if state := e.state.Load(); state != nil {
		return *state, nil
	}
	e.loading.Lock()
	defer e.loading.Unlock()
	if state := e.state.Load(); state != nil {
		return *state, nil
	}
	state, err := replay(db, e.id)
	if err != nil {
		return state, err
	}
	e.state.Store(&state)
	return state, nil
}

// replay folds the sandbox's log from its newest checkpoint on.
func replay(db *persist.DB, id string) (lifecycle.State, error) {
	last, err := db.Checkpoint(id)
	if err != nil {
		return lifecycle.New(id, nil), err
	}
	return catchUp(db, lifecycle.New(id, last))
}

// catchUp folds what the log holds beyond state.
func catchUp(db *persist.DB, state lifecycle.State) (lifecycle.State, error) {
	for {
		events, err := db.Events(state.SandboxID, state.Sequence, replayChunk)
		if err != nil {
			return state, err
		}
		state = lifecycle.Fold(state, events...)
		if len(events) < replayChunk {
			return state, nil
		}
	}
}

// registry finds sandboxes by id.
type registry struct {
	mu      sync.RWMutex
	entries map[string]*entry
	// claims are the ids of creates that are not accepted yet.
	claims map[string]claim
	// withdrawn are the images that are being removed; each is closed when that has ended.
	withdrawn map[string]chan struct{}
}

// claim is a create that is not accepted yet. done is closed when it has come out.
type claim struct {
	spec *agboxv1.CreateSpec
	done chan struct{}
}

// claim gives the caller alone the right to add a sandbox with this id until release, or returns the one that has it,
// after the create that another caller may have under way. It fails when ctx ends before that, and with ErrTooMany when
// there would be more than most sandboxes, 0 for any number, and with ErrOverlap.
func (r *registry) claim(ctx context.Context, id string, spec *agboxv1.CreateSpec, most int) (e *entry, release func(), err error) {
	for {
		r.mu.Lock()
		e, claimed := r.entries[id], r.claims[id].done
		if e == nil && claimed == nil && most > 0 && r.present() >= most {
			r.mu.Unlock()
			return nil, nil, fmt.Errorf("%w: there are %d, which is what limits.max_sandboxes allows: delete some", ErrTooMany, most)
		}
		if e == nil && claimed == nil {
			if err := r.overlapping(spec); err != nil {
				r.mu.Unlock()
				return nil, nil, err
			}
			done := make(chan struct{})
			r.claims[id] = claim{spec, done}
			r.mu.Unlock()
			return nil, func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.claims, id)
				close(done)
			}, nil
		}
		r.mu.Unlock()
		if claimed == nil {
			return e, nil, nil
		}
		select {
		case <-claimed:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("sandbox %s is being created for another request: %w", id, context.Cause(ctx))
		}
	}
}

func (r *registry) get(id string) (*entry, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e, found := r.entries[id]
	return e, found
}

// present counts the sandboxes that are not DELETED, those that are about to be included; r.mu is held.
func (r *registry) present() int {
	n := 0
	for id := range r.claims {
		if r.entries[id] == nil {
			n++
		}
	}
	for _, e := range r.entries {
		if state := e.state.Load(); state != nil && state.Phase != lifecycle.Deleted {
			n++
		}
	}
	return n
}

// add makes the sandbox known under an id that is free, or claimed by the caller, once its actor is there.
func (r *registry) add(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries[e.id] = e
}

func (r *registry) remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.entries, id)
}

func (r *registry) all() []*entry {
	r.mu.RLock()
	defer r.mu.RUnlock()
	list := make([]*entry, 0, len(r.entries))
	for _, e := range r.entries {
		list = append(list, e)
	}
	return list
}

// runner finds the sandbox in which an exec runs.
func (r *registry) runner(execID string) (*entry, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, e := range r.entries {
		if state := e.state.Load(); state != nil {
			if _, running := state.Running[execID]; running {
				return e, true
			}
		}
	}
	return nil, false
}
