// Package archive reaches the files of primaries: by way of agbox-init where the sandbox runs, else by the engine's archive API.
package archive

import (
	"context"
	"log/slog"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/hostpath"
)

// Config is what the files of sandboxes have to know of the daemon.
type Config struct {
	// DataDir is the daemon's, InitPath the agbox-init binary on the host, Init its place in a container.
	DataDir, InitPath, Init string
	// Places are what of this host no sandbox may have.
	Places func() hostpath.Places
	// SpecFile is where the spec is, as JSON, of a sandbox that took what was made ahead; others have none.
	SpecFile func(sandboxID string) string
	// Booted returns the link to the sandbox's agbox-init, which was booted.
	Booted func(sandboxID string) (*link.Link, error)
}

// Files are those of all sandboxes' primaries.
type Files struct {
	engine *engine.Client
	config Config
	log    *slog.Logger
}

// New returns the files of sandboxes of one engine.
func New(api *engine.Client, config Config, log *slog.Logger) *Files {
	return &Files{api, config, log}
}

// Primary returns the pid of the primary's first process on this host, 0 where none runs, and what follows links within it.
func (fs *Files) Primary(ctx context.Context, sandboxID string) (pid int, resolve func(path string) (string, error), err error) {
	b, err := fs.box(ctx, sandboxID)
	if err != nil {
		return 0, nil, err
	}
	return engine.ValueOf(b.State).Pid, func(path string) (string, error) {
		at, err := b.resolve(ctx, path)
		return at.path, err
	}, nil
}
