// Package runtime is what sandboxes are made of, as those who need it see it: small interfaces by consumer, and types that
// know neither actors nor Docker.
//
// Every method may be called again after a crash with the same arguments and then carries on or does nothing more; every
// method bounds its own calls, and ctx only adds an earlier end.
package runtime

import (
	"context"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Runtime is what the actors need.
type Runtime interface {
	Lifecycle
	Services
	Execs
	Observer
	Snapshots
	Warmer
}

// Lifecycle makes, changes and removes sandboxes. Create, Resume, Stop and Remove of one sandbox never overlap.
//
// A life names one start of a sandbox, and no other of that sandbox. Where an earlier try at that start had come to the
// sandbox's own command, the start is carried on from there: the command is never run twice in one life, and where its container
// has ended meanwhile the start fails.
type Lifecycle interface {
	// Conflict returns an error that wraps ErrConflict when something is there already under a name that a new sandbox with
	// this id needs.
	Conflict(ctx context.Context, sandboxID string) error
	// Create makes the sandbox without its optional services and returns once commands can run in it. It reports
	// progress as it goes. It removes what it made before it returns an error, but when ctx ended: then Create is called
	// again, or Remove.
	Create(ctx context.Context, sandboxID, life string, spec *agboxv1.CreateSpec, report func(Progress)) (Started, error)
	// Resume starts a stopped sandbox again, without its optional services, and never recreates a part of it.
	// Restart is Resume for one that has crashed: what is left of its earlier life is ended first.
	Resume(ctx context.Context, sandboxID, life string, spec *agboxv1.CreateSpec, report func(Progress)) (Started, error)
	Restart(ctx context.Context, sandboxID, life string, spec *agboxv1.CreateSpec, report func(Progress)) (Started, error)
	// Stop ends every process of the sandbox, its services included, and keeps its files. Processes have grace from TERM
	// to KILL, nil for the daemon's own. A frozen sandbox goes on for that.
	Stop(ctx context.Context, sandboxID string, grace *time.Duration) error
	// Pause freezes every process of the sandbox, its services included, and the clocks of its execs; Unpause ends that.
	Pause(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) error
	Unpause(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) error
	// Halt is Stop without any grace, for a sandbox that has failed.
	Halt(ctx context.Context, sandboxID string) error
	// Remove leaves nothing of the sandbox in the runtime, whatever state it is in. Exec logs stay.
	Remove(ctx context.Context, sandboxID string) error
	// Forget removes the exec logs and results of a removed sandbox.
	Forget(sandboxID string) error
}

// Started is what is known of a sandbox once commands can run in it.
type Started struct{ Ports []*agboxv1.PublishedPort }

// Progress is a Preparing or a ServiceReported: what a create or resume has come to. It is comparable.
type Progress interface{ progress() }

type (
	// Preparing names what is being done; image and bytes belong to a pull, and how many are before this one to the phase queued.
	Preparing struct {
		Phase, Image string
		Done, Total  uint64
		Before       uint32
	}
	// ServiceReported tells that a service became ready or, with a code, that it failed.
	ServiceReported struct{ Service, Code, Message string }
)

func (Preparing) progress()       {}
func (ServiceReported) progress() {}

// Services starts optional services, which a sandbox can be without.
type Services interface {
	// PrepareService makes the service's image present.
	PrepareService(ctx context.Context, sandboxID string, service *agboxv1.ServiceSpec) error
	// StartService starts the service, making it first unless again says that it was made before. It never overlaps with
	// what changes the sandbox.
	StartService(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, service *agboxv1.ServiceSpec, again bool) error
	// AwaitService returns once the service is healthy and its hooks have run.
	AwaitService(ctx context.Context, sandboxID string, service *agboxv1.ServiceSpec) error
}
