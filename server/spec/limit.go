package spec

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

const (
	// The kernel's bandwidth controller works in steps of 1 ms in its period of 100 ms.
	leastCPU = 0.01
	// What Linux can be built for (NR_CPUS). More means nothing, and overflows the engine's billionths of a CPU.
	mostCPU = 8192
	// Below this the engine refuses to start a container.
	leastMemory = 6 << 20
	// The kernel's own limit of process ids (PID_MAX_LIMIT).
	mostPids = 4 << 20
	// A file system quota below this holds nothing.
	leastDisk = 1 << 20
)

func validateLimits(field string, c container) error {
	cpu := c.GetCpuLimit()
	if cpu != 0 && !(cpu >= leastCPU && cpu <= mostCPU) { // NaN is neither
		return refuse(ReasonCPULimitInvalid, field+".cpu_limit", "%v CPUs cannot be a limit; use %v to %d, or 0 for no limit", cpu, leastCPU, mostCPU)
	}
	for _, l := range []struct {
		reason, name, unit string
		value, least, most int64
		zero               string
	}{
		{ReasonMemoryLimitInvalid, ".memory_limit", "bytes", c.GetMemoryLimit(), leastMemory, math.MaxInt64, "no limit"},
		{ReasonPidsLimitInvalid, ".pids_limit", "processes", c.GetPidsLimit(), 1, mostPids, "4096"},
		{ReasonDiskLimitInvalid, ".disk_limit", "bytes", c.GetDiskLimit(), leastDisk, math.MaxInt64, "no limit"},
		{ReasonShmSizeInvalid, ".shm_size", "bytes", c.GetShmSize(), 1, math.MaxInt64, "the engine's default"},
	} {
		switch {
		case l.value != 0 && l.value < l.least:
			return refuse(l.reason, field+l.name, "%d %s are too few; use at least %d, or 0 for %s", l.value, l.unit, l.least, l.zero)
		case l.value > l.most:
			return refuse(l.reason, field+l.name, "%d %s are more than %d; use fewer, or 0 for %s", l.value, l.unit, l.most, l.zero)
		}
	}
	return nil
}

var deviceIDs = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*(,[A-Za-z0-9][A-Za-z0-9-]*)*$`)

func validateGPUs(field, gpus string) error {
	if gpus == "" {
		return nil
	}
	ok := deviceIDs.MatchString(gpus)
	if strings.Trim(gpus, "0123456789") == "" {
		count, err := strconv.ParseInt(gpus, 10, 32)
		ok = err == nil && count > 0
	}
	if !ok {
		return refuse(ReasonGPUsInvalid, field, "%s names no devices; write \"all\", a number from 1 on, or ids separated by commas", shown(gpus))
	}
	return nil
}
