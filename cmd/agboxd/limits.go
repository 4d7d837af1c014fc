package main

import (
	"fmt"

	"github.com/docker/go-units"

	"github.com/agbox-dev/agbox/server/spec"
)

// limits are the operator's ceilings; 0 is none.
type limits struct {
	DefaultCPUs   float64 `toml:"default_cpus"`
	MaxCPUs       float64 `toml:"max_cpus"`
	DefaultMemory size    `toml:"default_memory"`
	MaxMemory     size    `toml:"max_memory"`
	DefaultPids   int64   `toml:"default_pids"`
	MaxPids       int64   `toml:"max_pids"`
	MaxOutput     size    `toml:"max_output"`
	MaxSandboxes  int     `toml:"max_sandboxes"`
	DiskHeadroom  size    `toml:"disk_headroom"`
	MaxTransfer   size    `toml:"max_transfer"`
	MaxSnapshot   size    `toml:"max_snapshot"`
}

// size reads bytes with a unit: "512m", "1.5GiB"; units are powers of 1024.
type size int64

func (s *size) UnmarshalText(text []byte) error {
	bytes, err := units.RAMInBytes(string(text))
	if err != nil {
		return fmt.Errorf("%q is no size, such as \"512m\"", text)
	}
	*s = size(bytes)
	return nil
}

func (l limits) ceilings() spec.Ceilings {
	return spec.Ceilings{
		CPUs:   spec.Ceiling[float64]{Default: l.DefaultCPUs, Most: l.MaxCPUs},
		Memory: spec.Ceiling[int64]{Default: int64(l.DefaultMemory), Most: int64(l.MaxMemory)},
		Pids:   spec.Ceiling[int64]{Default: l.DefaultPids, Most: l.MaxPids},
		Output: spec.Ceiling[uint64]{Most: uint64(l.MaxOutput)},
	}
}

// problem is what keeps the limits from being used, "" for nothing.
func (l limits) problem() string {
	for _, limit := range []struct {
		name            string
		byDefault, most float64
	}{
		{"cpus", l.DefaultCPUs, l.MaxCPUs}, {"memory", float64(l.DefaultMemory), float64(l.MaxMemory)}, {"pids", float64(l.DefaultPids), float64(l.MaxPids)},
	} {
		switch {
		case limit.byDefault < 0 || limit.most < 0:
			return fmt.Sprintf("limits.default_%[1]s and limits.max_%[1]s must not be negative; 0 is no limit", limit.name)
		case limit.most > 0 && limit.byDefault > limit.most:
			return fmt.Sprintf("limits.default_%[1]s must not be more than limits.max_%[1]s", limit.name)
		}
	}
	if min(size(l.MaxSandboxes), l.MaxOutput, l.DiskHeadroom, l.MaxTransfer, l.MaxSnapshot) < 0 {
		return "limits.max_sandboxes, max_output, max_transfer, max_snapshot and disk_headroom must not be negative; 0 is no limit"
	}
	return ""
}
