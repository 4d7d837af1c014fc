package runtime

import (
	"context"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Observer tells what there is and what happens to it.
type Observer interface {
	// Inventory lists what there is of this daemon's sandboxes, in a few calls however many there are.
	Inventory(ctx context.Context) (Inventory, error)
	// Describe returns a sandbox that only the runtime knows, and ExecIDs the execs of which there are logs or results.
	Describe(ctx context.Context, sandboxID string) (Found, error)
	ExecIDs(sandboxID string) ([]string, error)
	// Observe returns what became of the sandbox's containers. To those of one that lives it opens the way for commands, as
	// after a restart of the daemon; commands do so by themselves, and this spares the first one the wait.
	Observe(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (Observation, error)
	// Watch tells what happens, from since on, until ctx ends. It reconnects by itself.
	Watch(ctx context.Context, since time.Time, watcher Watcher)
}

// Observation is the state of a sandbox that should run.
type Observation struct {
	// Alive: the primary and all required services run. Otherwise Code and Cause tell a person why not: exit code,
	// signal, out of memory, or what is missing.
	Alive       bool
	Code, Cause string
	// Lost are the optional services that were made and do not run, and why.
	Lost map[string]string
}

// Watcher hears what happens in the runtime. Its methods do not block.
type Watcher interface {
	// Ended: a container of the sandbox ended.
	Ended(sandboxID string)
	// LinkLost: the program inside the sandbox, for which something waits, cannot be reached; why is for a person.
	LinkLost(sandboxID, why string)
	// Appeared: an object of the sandbox was made. The sandbox may belong to another daemon.
	Appeared(sandboxID string)
	// ImagesChanged: a name may mean another image than before, or none.
	ImagesChanged()
	// Missed: there was a gap, and whatever happened in it will not be told.
	Missed()
}

// Inventory is what the runtime holds of this daemon's sandboxes.
type Inventory struct {
	// Objects are the sandboxes with any object in the runtime; true when an earlier process of this daemon made it.
	Objects map[string]bool
	// Histories are the sandboxes with logs or results on disk.
	Histories []string
	// Since is when the oldest of it was made, by sandbox, as far as that shows.
	Since map[string]time.Time
}

// Found is a sandbox as the runtime alone tells it.
type Found struct {
	// Spec is what it was asked to be, as far as that shows.
	Spec *agboxv1.CreateSpec
	// Phase is READY, PAUSED, STOPPED, or FAILED with a Code and a Message; unspecified where nothing is left of it but
	// its logs.
	Phase         agboxv1.SandboxState
	Code, Message string
	CreatedAt     time.Time
	Ports         []*agboxv1.PublishedPort
}
