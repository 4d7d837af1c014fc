package dockerrt

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
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
	used, total := d.subnets.census()
	return runtime.Engine{
		Version: info.ServerVersion, APIVersion: d.api.ClientVersion(), OS: info.OperatingSystem, StorageDriver: info.Driver,
		Pool: d.subnets.pool.String(), SubnetsUsed: used, SubnetsTotal: total,
		Runtimes: slices.Sorted(maps.Keys(info.Runtimes)),
	}, nil
}

// census returns how many subnets of the pool are in use, by whomever, and how many there are.
func (s *subnets) census() (used, total uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	total = uint32(1) << (s.bits - s.pool.Bits())
	ours := map[netip.Prefix]bool{}
	for taken := range s.taken {
		switch {
		case !taken.Overlaps(s.pool):
		case taken.Bits() >= s.bits:
			ours[netip.PrefixFrom(taken.Addr(), s.bits).Masked()] = true
		case taken.Bits() <= s.pool.Bits():
			return total, total
		default:
			used += uint32(1) << (s.bits - taken.Bits())
		}
	}
	return min(used+uint32(len(ours)), total), total
}
