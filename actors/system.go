// Package actors decides: one actor a sandbox, which alone appends to that sandbox's log and has the runtime
// do what the log announces. System is the way in.
//
//	/sandboxes         supervisor
//	  <sandbox id>     one for each sandbox that is not DELETED
//	    x-<exec id>    one for each running exec
//	/docker            router of what ends in the runtime
//	/reconciler        comparison of the runtime with the logs
//	/janitor           end of histories
package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"golang.org/x/sync/errgroup"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/pool"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Config holds what a person can set.
type Config struct {
	// IdleTTL stops sandboxes that set none themselves after this long without a running exec; 0: never.
	IdleTTL time.Duration
	// CleanupTTL deletes sandboxes that have been STOPPED for this long; 0: never.
	CleanupTTL time.Duration
	// EventRetentionTTL removes the history of sandboxes this long after they were DELETED; 0: never.
	EventRetentionTTL time.Duration
	// MaxEvents is about how many events of a sandbox are kept, the newest; 0: all.
	MaxEvents uint64
	// MaxSandboxes is how many there may be that are not DELETED; 0: any number.
	MaxSandboxes int
	// OwnerLabel is the label that names whose a sandbox is; owners take turns at the engine. Sandboxes without it have all that
	// have the same labels for one owner.
	OwnerLabel string
	// Pool says what is made ahead.
	Pool pool.Config
	// OnShutdown is what becomes of sandboxes when the daemon ends.
	OnShutdown ShutdownPolicy
	// Adopt takes sandboxes in that the runtime has and the database does not know, before anything else is done. Forget,
	// where it is not nil, removes them instead; Start fails with ErrOrphanCount where there are not so many.
	Adopt  bool
	Forget *int
	// Now is the host's clock, nil for time.Now. Tests set it, as a person may.
	Now func() time.Time
}

// System is the running actor system. Its methods may be called from any goroutine between Start and the
// return of Shutdown.
type System struct {
	config   Config
	db       *persist.DB
	runtime  runtime.Runtime
	log      *slog.Logger
	now      func() time.Time
	actors   *actor.ActorSystem
	registry registry
	pool     *pool.Pool
	tokens   atomic.Uint64

	// working ends when the daemon no longer waits for its goroutines, which work counts.
	working context.Context
	abandon context.CancelFunc
	work    sync.WaitGroup
	closing atomic.Bool
	ended   chan struct{}
	once    sync.Once
}

// View is a sandbox as readers see it. Neither part may be changed.
type View struct {
	Spec  *agboxv1.CreateSpec
	State lifecycle.State
	// ExpiresAt, IdleAt and LeaseEndsAt are its deadlines, zero for none.
	ExpiresAt, IdleAt, LeaseEndsAt time.Time
}

func (s *System) view(e *entry, state lifecycle.State) View {
	p := s.policy(e.spec)
	return View{Spec: e.spec, State: state, ExpiresAt: p.ExpiresAt(state), IdleAt: p.IdleAt(state, e.traffic.now()), LeaseEndsAt: p.LeaseEndsAt(state, e.lease.now())}
}

func (s *System) policy(spec *agboxv1.CreateSpec) lifecycle.Policy {
	return lifecycle.Policy{Spec: spec, IdleTTL: s.config.IdleTTL, CleanupTTL: s.config.CleanupTTL}
}

// Start loads every sandbox from db, has each carry on where its log stands, and follows the runtime.
func Start(config Config, db *persist.DB, runtime runtime.Runtime, log *slog.Logger) (*System, error) {
	s := &System{config: config, db: db, runtime: runtime, log: log, ended: make(chan struct{}), now: time.Now}
	if config.Now != nil {
		s.now = config.Now
	}
	s.working, s.abandon = context.WithCancel(context.Background())
	s.registry.entries, s.registry.claims, s.registry.withdrawn = map[string]*entry{}, map[string]claim{}, map[string]chan struct{}{}
	s.pool = s.newPool()
	s.actors = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return log }))
	since := time.Now()
	if err := s.spawn(since); err != nil {
		s.Shutdown(context.Background())
		return nil, err
	}
	return s, nil
}

func (s *System) spawn(since time.Time) error {
	supervise := actor.PropsFromProducer(
		func() actor.Actor { return &supervisor{system: s, retiring: map[string]chan struct{}{}} },
		actor.WithSupervisor(restartStrategy{s}),
	)
	if _, err := s.actors.Root.SpawnNamed(supervise, nameSupervisor); err != nil {
		return fmt.Errorf("actors: cannot start the supervisor: %w", err)
	}
	if err := s.recover(); err != nil {
		return err
	}
	if err := s.settleOrphans(s.working); err != nil {
		return err
	}
	for name, produce := range map[string]actor.Producer{
		nameJanitor:    func() actor.Actor { return &janitor{system: s} },
		nameReconciler: func() actor.Actor { return &reconciler{system: s} },
		nameRouter:     func() actor.Actor { return &router{system: s, since: since} },
	} {
		if _, err := s.actors.Root.SpawnNamed(actor.PropsFromProducer(produce), name); err != nil {
			return fmt.Errorf("actors: cannot start /%s: %w", name, err)
		}
	}
	s.send(nameReconciler, &reconcile{})
	s.pool.Start()
	return nil
}

// Names of the actors beside the sandboxes.
const (
	nameSupervisor = "sandboxes"
	nameRouter     = "docker"
	nameReconciler = "reconciler"
	nameJanitor    = "janitor"
)

// send sends a message to one of them.
func (s *System) send(name string, message any) {
	s.actors.Root.Send(actor.NewPID(s.actors.Address(), name), message)
}

func (s *System) recover() error {
	sandboxes, err := s.db.Sandboxes()
	if err != nil {
		return err
	}
	var live []*entry
	for _, record := range sandboxes {
		e := newEntry(record.ID, record.Spec)
		e.requestID, e.place = record.RequestID, record.Place
		if e.place != "" {
			s.runtime.Reserve(e.id, e.place)
		}
		s.registry.add(e)
		if record.DeletedAt.IsZero() { // nothing can happen to others: readers fold their logs when they ask
			live = append(live, e)
		}
	}
	if err := s.loadAll(live); err != nil {
		return err
	}
	debug.FreeOSMemory() // of what folding long logs took
	for _, e := range live {
		s.adopt(e)
	}
	return nil
}

// loadAll folds the logs, on all processors.
func (s *System) loadAll(entries []*entry) error {
	var group errgroup.Group
	group.SetLimit(goruntime.GOMAXPROCS(0))
	for i, e := range entries {
		group.Go(func() error {
			if _, err := e.load(s.db); err != nil || i%letGoEvery != 0 {
				return err
			}
			return s.db.DropResident()
		})
	}
	return errors.Join(group.Wait(), s.db.DropResident())
}

// letGoEvery is after how many sandboxes a recovery lets go of what it read: some 10 MB of logs without checkpoints.
const letGoEvery = 32

func (s *System) adopt(e *entry) {
	done := make(chan struct{})
	s.send(nameSupervisor, &adopt{e, done})
	<-done
}

// discard ends an actor whose sandbox never came to be.
func (s *System) discard(e *entry) {
	done := make(chan struct{})
	s.send(nameSupervisor, &retire{e, done})
	<-done
	s.registry.remove(e.id)
	close(e.gone)
}

// forget lets go of a sandbox whose history is gone.
func (s *System) forget(id string) {
	e, found := s.registry.get(id)
	if !found {
		return
	}
	s.registry.remove(id)
	close(e.gone)
	if e.pid != nil {
		s.send(nameSupervisor, &retire{e, make(chan struct{})})
	}
}

// Request hands a Resume, Stop or Delete to the sandbox and returns once it is accepted: durable, and under
// way. What becomes of it is told by the events after sequence, which is that of the event that tells of the acceptance, or of
// the newest one where nothing was left to do. A *lifecycle.Refusal means that it does not fit the sandbox's state.
func (s *System) Request(ctx context.Context, id string, command lifecycle.Command) (sequence uint64, err error) {
	if s.closing.Load() {
		return 0, ErrShuttingDown
	}
	e, err := s.entry(id)
	if err != nil {
		return 0, err
	}
	a := s.request(ctx, e, newRequest(command))
	return a.sequence, a.err
}

// request answers for a DELETED sandbox without its actor, which is gone after a restart of the daemon.
func (s *System) request(ctx context.Context, e *entry, r *request) answer {
	state, err := e.load(s.db)
	if err == nil && state.Phase == lifecycle.Deleted {
		_, err = lifecycle.Decide(state, s.policy(e.spec), r.command, s.now())
		return answer{state, state.Sequence, err}
	} else if err != nil {
		return answer{err: err}
	}
	return s.ask(ctx, e, r)
}

// Sandbox returns the sandbox as it is now, or ErrNotFound. It is never behind the log: who has seen an event gets
// the state that follows from it, also in the moment before the actor has taken it in.
func (s *System) Sandbox(id string) (View, error) {
	e, err := s.entry(id)
	if err != nil {
		return View{}, err
	}
	state, err := e.load(s.db)
	if err == nil {
		state, err = catchUp(s.db, state)
	}
	if errors.Is(err, persist.ErrNoSandbox) {
		return View{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return s.view(e, state), err
}

// Sandboxes returns every sandbox that match accepts, in no order. match sees the spec only.
func (s *System) Sandboxes(match func(*agboxv1.CreateSpec) bool) ([]View, error) {
	var views []View
	for _, e := range s.registry.all() {
		if !match(e.spec) {
			continue
		}
		view, err := s.Sandbox(e.id)
		if errors.Is(err, ErrNotFound) {
			continue
		} else if err != nil {
			return nil, err
		}
		views = append(views, view)
	}
	return views, nil
}

func (s *System) entry(id string) (*entry, error) {
	e, found := s.registry.get(id)
	if !found {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return e, nil
}

// sendLater delivers message after the delay, unless the system ends first.
func (s *System) sendLater(to *actor.PID, message any, delay time.Duration) {
	s.after(delay, func() { s.actors.Root.Send(to, message) })
}

func (s *System) after(delay time.Duration, do func()) {
	s.work.Go(func() {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
			do()
		case <-s.working.Done():
		}
	})
}
