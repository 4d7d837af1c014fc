// Package actorstest has a runtime without Docker, for what an engine cannot do on demand: hang at a given call,
// fail at it, or make ten thousand sandboxes.
package actorstest

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Runtime does everything at once and remembers what it was asked for. The hooks change that; set them before the
// runtime is used. It is safe for concurrent use.
type Runtime struct {
	// Before is called at the beginning of each operation and look with its name ("create box-1", "inventory") and may block
	// or fail it.
	Before func(ctx context.Context, call string) error
	// Run is how a command ends; nil: at once with exit code 0.
	Run func(ctx context.Context, request *agboxv1.CreateExecRequest) (runtime.ExecResult, error)
	// Play, where it is not nil, plays commands in place of Run, with input and output below Logs: sandboxes' own commands,
	// too. Close must follow. The context ends with a cancel, the timeout, or the sandbox.
	Play func(ctx context.Context, command *Command) runtime.ExecResult
	// ServiceOutput is what a service has written; nil: nothing.
	ServiceOutput func(service string) (stdout, stderr string)
	// Queued is what each create reports of its way to a turn.
	Queued []runtime.Preparing
	// Usage is what Stats returns of a sandbox that runs; nil: one process.
	Usage func(sandboxID string) []*agboxv1.ContainerStats
	// Findings is what Examine returns.
	Findings []*agboxv1.Finding
	// Recorded is called, inside the sandbox's actor, when the end of an exec is in the log; it may panic.
	Recorded func(execID string)
	// Conflicts is called when a create looks for names that are taken; it may block.
	Conflicts func()
	// NoCopyOnWrite is why no sandbox can have copy-on-write mounts; nil: they can.
	NoCopyOnWrite error
	// Logs is the directory that output lies in; "": there is none.
	Logs string
	// Images are the ids of images by name; of one that is not there it is its name. An id of "" is not known.
	Images map[string]string
	// NotIsolated is why sandboxes are not kept from the host; "": they are.
	NotIsolated string
	// Orphans are reported as objects in the runtime.
	Orphans map[string]bool
	// Described are sandboxes that the runtime can describe, Histories those with files, and Execs the execs of each sandbox
	// that have any.
	Described map[string]runtime.Found
	Histories []string
	Execs     map[string][]string

	mu      sync.Mutex
	calls   []string
	running map[string]bool
	records map[string]runtime.ExecResult
	cancels map[string]chan struct{}
	busy    map[string]string
	lost    map[string]string
	inputs  inputs
	pids    runtime.Pids
	overlap []string
	watch   chan func(runtime.Watcher)

	places    places
	snapshots snapshots
	trees     trees
	// fileEvents are what happened to files, by sandbox; filesChanged is closed when there are more.
	fileEvents   map[string][]*agboxv1.FileEvent
	filesChanged chan struct{}

	specs    map[string]*agboxv1.CreateSpec
	lives    map[string]string  // of sandboxes whose own command was begun
	played   map[string]*played // by sandbox and exec
	commands sync.WaitGroup
}

var _ runtime.Runtime = (*Runtime)(nil)

// New returns a runtime without hooks.
func New() *Runtime {
	return &Runtime{running: map[string]bool{}, records: map[string]runtime.ExecResult{},
		cancels: map[string]chan struct{}{}, specs: map[string]*agboxv1.CreateSpec{}, lives: map[string]string{}, busy: map[string]string{}, watch: make(chan func(runtime.Watcher))}
}

// Calls returns what was asked for, in order.
func (r *Runtime) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Overlaps returns the operations that began while another one of the same sandbox had not ended.
func (r *Runtime) Overlaps() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.overlap)
}

// SetOrphans changes Orphans while the runtime is used.
func (r *Runtime) SetOrphans(orphans map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Orphans = orphans
}

// Record puts a result on disk, as agbox-init does.
func (r *Runtime) Record(execID string, result runtime.ExecResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records[execID] = result
}

// Kill ends the primary container unseen.
func (r *Runtime) Kill(sandboxID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[sandboxID] = false
}

// Die ends the primary container, and has the watcher told.
func (r *Runtime) Die(sandboxID string) {
	r.Kill(sandboxID)
	r.watch <- func(w runtime.Watcher) { w.Ended(sandboxID) }
}

// Miss has the watcher told that there was a gap in what it hears.
func (r *Runtime) Miss() { r.watch <- func(w runtime.Watcher) { w.Missed() } }

// LoseLink has the watcher told that nobody inside the sandbox answers; with dies its primary is gone, too.
func (r *Runtime) LoseLink(sandboxID string, dies bool) {
	r.mu.Lock()
	r.running[sandboxID] = !dies
	r.mu.Unlock()
	r.watch <- func(w runtime.Watcher) { w.LinkLost(sandboxID, "nobody answers") }
}

// Appear makes an object of the sandbox, as an engine does that finishes what a dead daemon asked for.
func (r *Runtime) Appear(sandboxID string) {
	r.mu.Lock()
	r.Orphans = map[string]bool{sandboxID: true}
	r.mu.Unlock()
	r.watch <- func(w runtime.Watcher) { w.Appeared(sandboxID) }
}

func (r *Runtime) operate(ctx context.Context, verb, sandboxID string, running bool) error {
	call := verb + " " + sandboxID
	r.mu.Lock()
	r.calls = append(r.calls, call)
	if other := r.busy[sandboxID]; other != "" {
		r.overlap = append(r.overlap, call+" during "+other)
	}
	r.busy[sandboxID] = call
	r.log(sandboxID, call)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.busy, sandboxID)
		r.mu.Unlock()
	}()
	if r.Before != nil {
		if err := r.Before(ctx, call); err != nil {
			return err
		}
	}
	if !running {
		r.endCommands(sandboxID)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if verb != "pause" && verb != "unpause" { // which neither start nor end anything
		r.running[sandboxID] = running
	}
	return nil
}

func (r *Runtime) isRunning(sandboxID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[sandboxID]
}

// Spec is the sandbox's, once its creation has begun.
func (r *Runtime) Spec(sandboxID string) *agboxv1.CreateSpec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.specs[sandboxID]
}

// start makes a sandbox run, with its own command.
func (r *Runtime) start(ctx context.Context, verb, id, life string, spec *agboxv1.CreateSpec) (runtime.Started, error) {
	r.mu.Lock()
	r.specs[id] = spec
	r.mu.Unlock()
	if r.Play != nil { // whoever follows output finds its directory
		stdout, _ := r.ExecLogs(id, runtime.CommandID)
		if err := os.MkdirAll(filepath.Dir(stdout), 0o700); err != nil {
			return runtime.Started{}, err
		}
	}
	if err := r.operate(ctx, verb, id, true); err != nil {
		return runtime.Started{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Play != nil && len(spec.GetCommand()) > 0 && r.lives[id] != life {
		r.lives[id] = life
		delete(r.played, id+"/"+runtime.CommandID) // which has ended with the life before
		r.play(&agboxv1.CreateExecRequest{SandboxId: id, ExecId: runtime.CommandID, Command: spec.Command, Cwd: spec.WorkingDir})
	}
	return runtime.Started{}, nil
}

func (r *Runtime) Conflict(context.Context, string) error {
	if r.Conflicts != nil {
		r.Conflicts()
	}
	return nil
}

func (r *Runtime) Create(ctx context.Context, id, life string, spec *agboxv1.CreateSpec, report func(runtime.Progress)) (runtime.Started, error) {
	report(runtime.Preparing{Phase: "materialize"})
	for _, progress := range r.Queued {
		report(progress)
	}
	return r.start(ctx, "create", id, life, spec)
}

func (r *Runtime) Resume(ctx context.Context, id, life string, spec *agboxv1.CreateSpec, _ func(runtime.Progress)) (runtime.Started, error) {
	return r.start(ctx, "resume", id, life, spec)
}

func (r *Runtime) Restart(ctx context.Context, id, life string, spec *agboxv1.CreateSpec, report func(runtime.Progress)) (runtime.Started, error) {
	if err := r.Halt(ctx, id); err != nil {
		return runtime.Started{}, err
	}
	return r.Resume(ctx, id, life, spec, report)
}

func (r *Runtime) Halt(ctx context.Context, id string) error {
	return r.operate(ctx, "halt", id, false)
}

func (r *Runtime) PrepareService(ctx context.Context, id string, service *agboxv1.ServiceSpec) error {
	return r.service(ctx, "prepare", id, service)
}

// StartService overlaps with nothing that changes the sandbox.
func (r *Runtime) StartService(ctx context.Context, id string, _ *agboxv1.CreateSpec, service *agboxv1.ServiceSpec, again bool) error {
	verb := "start " + service.Name + " in"
	if again {
		verb = "start again " + service.Name + " in"
	}
	return r.operate(ctx, verb, id, true)
}

func (r *Runtime) AwaitService(ctx context.Context, id string, service *agboxv1.ServiceSpec) error {
	return r.service(ctx, "await", id, service)
}

func (r *Runtime) service(ctx context.Context, verb, id string, service *agboxv1.ServiceSpec) error {
	return r.before(ctx, verb+" "+service.Name+" in "+id)
}

func (r *Runtime) before(ctx context.Context, call string) error {
	r.mu.Lock()
	r.calls = append(r.calls, call)
	r.mu.Unlock()
	if r.Before == nil {
		return nil
	}
	return r.Before(ctx, call)
}

// Lose ends an optional service, and has the watcher told.
func (r *Runtime) Lose(sandboxID, service string) {
	r.mu.Lock()
	r.lost = map[string]string{service: "exit code 1"}
	r.mu.Unlock()
	r.watch <- func(w runtime.Watcher) { w.Ended(sandboxID) }
}

func (r *Runtime) Stop(ctx context.Context, id string, _ *time.Duration) error {
	return r.operate(ctx, "stop", id, false)
}

func (r *Runtime) Pause(ctx context.Context, id string, _ *agboxv1.CreateSpec) error {
	return r.operate(ctx, "pause", id, true)
}

func (r *Runtime) Unpause(ctx context.Context, id string, _ *agboxv1.CreateSpec) error {
	return r.operate(ctx, "unpause", id, true)
}

func (r *Runtime) Remove(ctx context.Context, id string) error {
	if err := r.operate(ctx, "remove", id, false); err != nil {
		return err
	}
	_ = r.DeleteSnapshot(ctx, runtime.ForkSnapshotID(id)) // of a fork only
	r.mu.Lock()
	delete(r.Orphans, id)
	r.mu.Unlock()
	return nil
}

func (r *Runtime) Forget(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, "forget "+id)
	r.Histories = slices.DeleteFunc(r.Histories, func(other string) bool { return other == id })
	return nil
}

func (r *Runtime) Inventory(ctx context.Context) (runtime.Inventory, error) {
	if r.Before != nil {
		if err := r.Before(ctx, "inventory"); err != nil {
			return runtime.Inventory{}, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return runtime.Inventory{Objects: maps.Clone(r.Orphans), Histories: slices.Clone(r.Histories)}, nil
}

func (r *Runtime) Describe(_ context.Context, id string) (runtime.Found, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.Described[id]
	r.running[id] = found.Phase == agboxv1.SandboxState_SANDBOX_STATE_READY
	if found.Spec == nil {
		found.Spec = &agboxv1.CreateSpec{}
	}
	return found, nil
}

func (r *Runtime) ExecIDs(id string) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.Execs[id]), nil
}

func (r *Runtime) ForgetExec(sandboxID, execID string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, "forget "+execID+" of "+sandboxID)
	return nil
}

func (r *Runtime) Observe(ctx context.Context, id string, _ *agboxv1.CreateSpec) (runtime.Observation, error) {
	if err := r.before(ctx, "observe "+id); err != nil {
		return runtime.Observation{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return runtime.Observation{Alive: r.running[id], Code: runtime.CodeContainerNotRunning, Cause: "exit code 137 (signal 9)", Lost: r.lost}, nil
}

// Isolated returns NotIsolated.
func (r *Runtime) Isolated() (bool, string) { return r.NotIsolated == "", r.NotIsolated }

// CopyOnWrite returns NoCopyOnWrite.
func (r *Runtime) CopyOnWrite() error { return r.NoCopyOnWrite }
func (r *Runtime) Disks() []string    { return nil }

func (r *Runtime) Examine(context.Context) ([]*agboxv1.Finding, error) { return r.Findings, nil }

func (r *Runtime) Engine(context.Context) (runtime.Engine, error) {
	return runtime.Engine{Version: "fake", APIVersion: "1.41", OS: "no OS", StorageDriver: "none", Pool: "192.0.2.0/24", SubnetsTotal: 1, Runtimes: []string{"runc"},
		NetworksReady: 2, NetworksKept: 4, Work: runtime.Work{Slots: 3,
			Running: map[runtime.Class]int{runtime.Person: 3, runtime.Refill: 1, runtime.Cleanup: 0}, Waiting: map[runtime.Class]int{runtime.Person: 7}}}, nil
}

func (r *Runtime) Stats(_ context.Context, id string) ([]*agboxv1.ContainerStats, error) {
	if !r.isRunning(id) {
		return nil, nil
	}
	if r.Usage != nil {
		return r.Usage(id), nil
	}
	return []*agboxv1.ContainerStats{{Pids: 1}}, nil
}

func (r *Runtime) Watch(ctx context.Context, _ time.Time, watcher runtime.Watcher) {
	for {
		select {
		case tell := <-r.watch:
			tell(watcher)
		case <-ctx.Done():
			return
		}
	}
}
