// Package host tells what sandboxes run on: the engine, its host, and what is wrong with them.
package host

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/mount"
	"github.com/agbox-dev/agbox/dockerrt/network"
	"github.com/agbox-dev/agbox/dockerrt/queue"
	"github.com/agbox-dev/agbox/hostpath"
)

// Host implements runtime.Host but for Stats.
type Host struct {
	facts    Facts
	engine   *engine.Client
	dataDir  string
	networks *network.Networks
	mounts   *mount.Mounts
	queue    *queue.Queue
}

// New returns what can be told of the engine with these facts; dataDir is the daemon's.
func New(api *engine.Client, facts Facts, dataDir string, networks *network.Networks, mounts *mount.Mounts, queue *queue.Queue) *Host {
	return &Host{facts, api, dataDir, networks, mounts, queue}
}

// Disks are directories on each of the disks that sandboxes fill: the daemon's, and the engine's where that is here.
func (h *Host) Disks() []string {
	disks := []string{h.dataDir}
	if _, err := os.Stat(h.facts.Root); h.facts.Root != "" && err == nil {
		disks = append(disks, h.facts.Root)
	}
	return disks
}

// Engine implements runtime.Host.
func (h *Host) Engine(ctx context.Context) (_ runtime.Engine, err error) {
	defer engine.Mark(&err)
	ctx, cancel := h.engine.Read(ctx)
	defer cancel()
	info, err := h.engine.Info(ctx)
	if err != nil {
		return runtime.Engine{}, fmt.Errorf("dockerrt: cannot ask the engine about itself: %w", err)
	}
	pool, used, total := h.networks.Census()
	ready, kept := h.networks.Ready()
	return runtime.Engine{
		Version: info.ServerVersion, APIVersion: h.engine.ClientVersion(), OS: info.OperatingSystem, StorageDriver: info.Driver,
		Pool: pool.String(), SubnetsUsed: used, SubnetsTotal: total,
		NetworksReady: uint32(ready), NetworksKept: uint32(kept),
		Work:     h.queue.Census(),
		Runtimes: slices.Sorted(maps.Keys(info.Runtimes)),
	}, nil
}

// Isolated reports whether sandboxes are kept from the host and from each other, or would be if there were any, and why
// not. It looks, and mends what it can.
func (h *Host) Isolated() (bool, string) {
	if err := h.networks.Isolated(); err != nil {
		return false, err.Error()
	}
	return true, ""
}

// Places are what of this host no sandbox may have: the configured ones, and those of the engine.
func (h *Host) Places() hostpath.Places { return h.mounts.Places() }

// ReadOnlyBelow reports whether the engine makes what is mounted in the source of a read-only mount read-only as well.
func (h *Host) ReadOnlyBelow() bool { return h.facts.ReadOnlyBelow }

// CopyOnWrite implements runtime.Host.
func (h *Host) CopyOnWrite() error { return h.mounts.CopyOnWrite() }
