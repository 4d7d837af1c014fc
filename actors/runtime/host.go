package runtime

import (
	"context"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Host tells what the runtime runs on, and what of it sandboxes use.
type Host interface {
	// Isolated reports whether sandboxes are kept from the host and from each other, and if not, why.
	Isolated() (bool, string)
	// CopyOnWrite returns why no sandbox can have copy-on-write mounts, nil when they can.
	CopyOnWrite() error
	// Examine finds out what is wrong with what the runtime runs on.
	Examine(ctx context.Context) ([]*agboxv1.Finding, error)
	// Disks are directories on each of the disks that sandboxes fill.
	Disks() []string
	Engine(ctx context.Context) (Engine, error)
	// Stats returns what each container of the sandbox that runs, or is paused, uses now: the primary first, then the
	// services by name.
	Stats(ctx context.Context, sandboxID string) ([]*agboxv1.ContainerStats, error)
}

// Engine is what the runtime runs on, and how much of its network pool is in use.
type Engine struct {
	Version, APIVersion, OS, StorageDriver string
	// Pool is the range that sandbox networks come from; one subnet of it is one sandbox. Used counts those that
	// something else on the host occupies, too.
	Pool                      string
	SubnetsUsed, SubnetsTotal uint32
	// NetworksReady were made ahead and are nobody's, NetworksKept is how many are kept so.
	NetworksReady, NetworksKept uint32
	// Work is what is asked of it now.
	Work Work
	// Runtimes are the names of those that can run containers, sorted.
	Runtimes []string
}
