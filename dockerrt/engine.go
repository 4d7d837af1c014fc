package dockerrt

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/engine"
)

// Disks are directories on each of the disks that sandboxes fill: the daemon's, and the engine's where that is here.
func (d *Docker) Disks() []string {
	disks := []string{d.layout.root}
	if _, err := os.Stat(d.root); d.root != "" && err == nil {
		disks = append(disks, d.root)
	}
	return disks
}

// Engine implements runtime.Host.
func (d *Docker) Engine(ctx context.Context) (_ runtime.Engine, err error) {
	defer engine.Mark(&err)
	ctx, cancel := d.api.Read(ctx)
	defer cancel()
	info, err := d.api.Info(ctx)
	if err != nil {
		return runtime.Engine{}, fmt.Errorf("dockerrt: cannot ask the engine about itself: %w", err)
	}
	pool, used, total := d.networks.Census()
	return runtime.Engine{
		Version: info.ServerVersion, APIVersion: d.api.ClientVersion(), OS: info.OperatingSystem, StorageDriver: info.Driver,
		Pool: pool.String(), SubnetsUsed: used, SubnetsTotal: total,
		Runtimes: slices.Sorted(maps.Keys(info.Runtimes)),
	}, nil
}
