package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/docker/go-units"

	"github.com/agbox-dev/agbox/actors/pool"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

// ahead is what is made ahead.
type ahead struct {
	// Warm are specs as in a YAML file, each with its size.
	Warm           []map[string]any `toml:"warm"`
	Recent         int              `toml:"recent"`
	KeepOnShutdown bool             `toml:"keep_on_shutdown"`
	// Networks is how many networks are kept ready.
	Networks int `toml:"networks"`
}

// recentFor is how long the class that was created last is kept ready after its last create.
const recentFor = 10 * time.Minute

const (
	keySize = "size"
	// mostWarm is more of one kind than any host can run.
	mostWarm = 10_000
)

// problem is what keeps it from being used, "" for nothing; what the specs say is looked at by config.
func (a ahead) problem() string {
	if a.Recent < 0 || a.Recent > mostWarm {
		return fmt.Sprintf("pool.recent must lie between 0, for none, and %d", mostWarm)
	}
	for i, kind := range a.Warm {
		if size, ok := kind[keySize].(int64); !ok || size < 1 || size > mostWarm {
			return fmt.Sprintf("pool.warm[%d].size must be a number between 1 and %d", i, mostWarm)
		}
	}
	return ""
}

// config reads the specs as creates are read on this host. disks are looked at for whether there is room, of which headroom is kept.
func (a ahead) config(host spec.Host, disks []string, headroom uint64) (pool.Config, error) {
	config := pool.Config{Recent: a.Recent, RecentFor: recentFor, Keep: a.KeepOnShutdown, Short: func() string { return short(disks, headroom) }}
	for i, kind := range a.Warm {
		fields := map[string]any{}
		for key, value := range kind {
			if key != keySize {
				fields[key] = value
			}
		}
		text, err := json.Marshal(fields) // which is YAML, too
		if err != nil {
			return config, fmt.Errorf("pool.warm[%d]: %w", i, err)
		}
		resolved, err := spec.Resolve(&agboxv1.CreateSandboxRequest{ConfigYaml: text}, host)
		if err != nil {
			return config, fmt.Errorf("pool.warm[%d]: %w", i, err)
		}
		accepted := resolved.Accepted()
		if _, _, whyNot := pool.Fit(accepted); whyNot != "" {
			return config, fmt.Errorf("pool.warm[%d]: %s", i, whyNot)
		}
		config.Warm = append(config.Warm, pool.Kind{Spec: accepted, Size: int(kind[keySize].(int64))})
	}
	return config, nil
}

// memoryShare is the part of the memory that is left to what is there already: one in.
const memoryShare = 16

// short says what this machine has too little of to keep anything ready, "" for nothing.
func short(disks []string, headroom uint64) string {
	for _, place := range disks {
		var disk syscall.Statfs_t
		if syscall.Statfs(place, &disk) == nil && disk.Bavail*uint64(disk.Bsize) < 2*headroom {
			return fmt.Sprintf("%s has %s left, less than twice limits.disk_headroom", place, units.BytesSize(float64(disk.Bavail*uint64(disk.Bsize))))
		}
	}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return "" // another system, which does not tell
	}
	total, left := memory(string(text), "MemTotal"), memory(string(text), "MemAvailable")
	if left < total/memoryShare {
		return fmt.Sprintf("%s of memory are left of %s", units.BytesSize(float64(left)), units.BytesSize(float64(total)))
	}
	return ""
}

// memory is a line of /proc/meminfo in bytes, 0 where there is none.
func memory(text, name string) uint64 {
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, name+":"); found {
			kilobytes, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}
