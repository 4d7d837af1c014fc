package process

import (
	"strconv"
	"strings"
	"syscall"
)

// OOMCounter reads how many processes of the sandbox the kernel has killed for want of memory. It
// holds the file open, so that a command that mounts something over it changes nothing.
type OOMCounter struct {
	fd int // -1: there is none
}

// OpenOOMCounter finds the counter of cgroup v2, else that of v1. The kernel raises it before it
// sends KILL.
func OpenOOMCounter() OOMCounter {
	for _, path := range []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"} {
		if fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
			return OOMCounter{fd}
		}
	}
	return OOMCounter{-1}
}

// OOMCounterAt is the counter in a file; Close must follow.
func OOMCounterAt(path string) (OOMCounter, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	return OOMCounter{fd}, err
}

// Close lets go of the file.
func (c OOMCounter) Close() { syscall.Close(c.fd) }

// Kills is the counter's value, 0 when it cannot be read.
func (c OOMCounter) Kills() uint64 {
	if c.fd < 0 {
		return 0
	}
	var buf [512]byte // either file has fewer than ten short lines
	n, _ := syscall.Pread(c.fd, buf[:], 0)
	for line := range strings.Lines(string(buf[:max(n, 0)])) {
		if value, ok := strings.CutPrefix(line, "oom_kill "); ok {
			kills, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			return kills
		}
	}
	return 0
}
