// Package mount is what of the host a sandbox has: sources that stay what was accepted, and layers of its own over them.
package mount

import (
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/hostpath"
)

// Layers is the directory of the daemon's in which layers are made.
const Layers = "layers"

// Config is what the mounts have to know of the daemon and of its engine.
type Config struct {
	// DataDir is the daemon's.
	DataDir string
	// InitPath is the agbox-init binary on the host, Init its place in a container.
	InitPath, Init string
	// Places are what of this host no sandbox may have, beside DataDir and what is the engine's.
	Places hostpath.Places
	// EngineRoot is where an engine of this host keeps its data, "" where that is not known.
	EngineRoot string
	// Elsewhere says why the engine cannot lay layers over this host's files, although it has a socket here.
	Elsewhere string
	// ReadOnlyBelow: the engine (Docker 25, Linux 5.12) can make what is mounted below a read-only mount read-only as well.
	ReadOnlyBelow bool
}

// Mounts makes, checks and removes what sandboxes have of the host.
type Mounts struct {
	engine *engine.Client
	config Config
}

// New returns the mounts of one engine and one data directory.
func New(api *engine.Client, config Config) *Mounts { return &Mounts{api, config} }
