// Package container makes, starts, freezes and stops the containers of sandboxes: what every one of ours has in common, and the
// primary, whose first process is agbox-init. It decides nothing about when.
package container

import (
	"log/slog"
	"time"

	"github.com/agbox-dev/agbox/dockerrt/archive"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/layout"
	"github.com/agbox-dev/agbox/dockerrt/links"
	"github.com/agbox-dev/agbox/dockerrt/mount"
	"github.com/agbox-dev/agbox/dockerrt/network"
	"github.com/agbox-dev/agbox/oplog"
)

// Config is what the daemon decides about containers.
type Config struct {
	Layout layout.Layout
	// Guest is the directory of the host that sandboxes have at layout.GuestHome.
	Guest string
	// StopGrace is how long processes have from TERM to KILL.
	StopGrace time.Duration
	// MaxOutput and DiskHeadroom bound the output of the sandbox's own command, 0 for no limit.
	MaxOutput, DiskHeadroom uint64
	// UID and GID are what the sandbox sees as HOST_UID and HOST_GID.
	UID, GID int
}

// Rooms are what containers stand on.
type Rooms struct {
	Engine   *engine.Client
	Networks *network.Networks
	Mounts   *mount.Mounts
	Files    *archive.Files
	Links    *links.Links
	Oplogs   *oplog.Logs
}

// Containers are those of all sandboxes.
type Containers struct {
	config   Config
	layout   layout.Layout
	engine   *engine.Client
	networks *network.Networks
	mounts   *mount.Mounts
	files    *archive.Files
	links    *links.Links
	oplogs   *oplog.Logs
	log      *slog.Logger
}

// New returns the containers of one engine.
func New(on Rooms, config Config, log *slog.Logger) *Containers {
	return &Containers{config, config.Layout, on.Engine, on.Networks, on.Mounts, on.Files, on.Links, on.Oplogs, log}
}
