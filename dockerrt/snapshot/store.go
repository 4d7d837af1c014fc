// Package snapshot keeps the file systems of primaries as images of the engine.
package snapshot

import (
	"context"
	"log/slog"
	"sync"

	"github.com/agbox-dev/agbox/dockerrt/engine"
)

// Config is what snapshots have to know of the daemon and of its engine.
type Config struct {
	// Dir holds the specs of snapshots, with the variables that their images must not show.
	Dir string
	// MaxSize bounds what a sandbox has beyond its image, in bytes, 0 for no limit; DiskHeadroom is what stays free beside it.
	// Holes in files count: an engine fills them.
	MaxSize, DiskHeadroom uint64
	// EngineRoot is where an engine of this host keeps its data, "" where that is not known.
	EngineRoot string
	// Freeze has the clocks of a sandbox's execs stand still, and Thaw lets them go on.
	Freeze func(ctx context.Context, sandboxID string) error
	Thaw   func(sandboxID string)
}

// Store makes, finds and removes snapshots.
type Store struct {
	engine *engine.Client
	config Config
	log    *slog.Logger
	late   sync.WaitGroup // commits that nobody waits for any more
}

// New returns the snapshots of one engine. Close it after engine.Client.Abort.
func New(api *engine.Client, config Config, log *slog.Logger) *Store {
	return &Store{engine: api, config: config, log: log}
}

// Close returns when nothing is under way any more.
func (st *Store) Close() { st.late.Wait() }
