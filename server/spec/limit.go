package spec

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

const (
	// The kernel's bandwidth controller works in steps of 1 ms in its period of 100 ms.
	leastCPU = 0.01
	// What Linux can be built for (NR_CPUS). More means nothing, and overflows the engine's billionths of a CPU.
	mostCPU = 8192
	// Below this the engine refuses to start a container.
	leastMemory = 6 << 20
	// What agbox-init, its look at files and a small command were seen to work in, through commands that take all there is, and some
	// room: 12 MiB did on a machine where 8 did not.
	leastPrimaryMemory = 16 << 20
	// agbox-init has some 15 threads, its look at files and, where the engine carries everything, its relay some 5 and 10 more.
	leastPrimaryPids = 48
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
	memory, pids := int64(leastMemory), int64(1)
	if _, primary := c.(*agboxv1.CreateSpec); primary {
		memory, pids = leastPrimaryMemory, leastPrimaryPids
	}
	for _, l := range []struct {
		reason, name, unit string
		value, least, most int64
		zero               string
	}{
		{ReasonMemoryLimitInvalid, ".memory_limit", "bytes", c.GetMemoryLimit(), memory, math.MaxInt64, "no limit"},
		{ReasonPidsLimitInvalid, ".pids_limit", "processes", c.GetPidsLimit(), pids, mostPids, "4096"},
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
		return refuse(ReasonGPUsInvalid, field, "%s names no devices; write \"all\", a number from 1 on, or ids separated by commas", quote(gpus))
	}
	return nil
}
