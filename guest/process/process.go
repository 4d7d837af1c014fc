// Package process knows the processes of a sandbox: whose they are, and what the kernel has killed of them.
package process

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// The processes of a command are found by a mark that they inherit and, unlike a process group or
// a session, do not leave by setsid or a double fork: the soft limit RLIMIT_LOCKS. Linux has not
// enforced that limit since 2.4, every process may set its own soft limit, fork and exec pass it on,
// and /proc/<pid>/limits is readable by everybody. So each command begins with a number
// that nobody else has; all who carry it belong to that command. So that no process takes the mark off, or
// another's on, that one limit is sealed (see seal).
//
// Other marks fall short: control groups are read-only in an unprivileged container, reading
// environments needs the right to ptrace, a session is left by setsid, and the chain of parents
// breaks when one dies.
const (
	LimitLocks = 10
	tagLine    = "Max file locks" // in /proc/<pid>/limits
	firstTag   = 1 << 40
)

// Limit is a resource limit as the kernel has it.
type Limit struct{ Soft, Hard uint64 }

// Tagger hands out tags; 0 when limits cannot be set, because the container has a low hard limit, or not be read, as with gVisor.
type Tagger struct {
	last uint64
	// Hard is the hard limit that a tag is the soft one of.
	Hard uint64
}

// NewTagger is for once in the life of a sandbox.
func NewTagger() Tagger {
	var own Limit
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, LimitLocks, 0, uintptr(unsafe.Pointer(&own)), 0, 0)
	if errno != 0 || !strings.Contains(readSome("/proc/self/limits", make([]byte, 4096)), tagLine) {
		return Tagger{}
	}
	return Tagger{last: firstTag, Hard: own.Hard}
}

// Next is a tag that nobody has, 0 for none.
func (t *Tagger) Next() uint64 {
	if t.last >= t.Hard {
		return 0
	}
	t.last++
	return t.last
}

// Given tells whether it has handed out a tag.
func (t *Tagger) Given(tag uint64) bool { return tag > firstTag && tag <= t.last }

// Process is what /proc tells of one.
type Process struct {
	PID, Parent, Group, Session int
	Started                     uint64 // tells a reused pid
	Tag                         uint64
	Zombie                      bool
}

// All lists all but init; nil when /proc cannot be read.
func All() []Process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil || len(names) == 0 {
		return nil
	}
	all := []Process{}
	buf := make([]byte, 4096)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == 1 {
			continue
		}
		p := Process{PID: pid}
		if p.parseStat(readSome("/proc/"+name+"/stat", buf)) {
			p.parseLimits(readSome("/proc/"+name+"/limits", buf))
			all = append(all, p)
		}
	}
	return all
}

// parseStat reads "pid (name) state parent group session ..."; the name may hold anything.
func (p *Process) parseStat(stat string) bool {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) < 20 {
		return false
	}
	p.Zombie = f[0] == "Z" || f[0] == "X"
	p.Parent, _ = strconv.Atoi(f[1])
	p.Group, _ = strconv.Atoi(f[2])
	p.Session, _ = strconv.Atoi(f[3])
	p.Started, _ = strconv.ParseUint(f[19], 10, 64)
	return true
}

func (p *Process) parseLimits(limits string) {
	_, rest, _ := strings.Cut(limits, tagLine)
	if f := strings.Fields(rest); len(f) > 0 {
		p.Tag, _ = strconv.ParseUint(f[0], 10, 64)
	}
}

// readSome returns the beginning of a small file, "" when it cannot be read.
func readSome(path string, buf []byte) string {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer syscall.Close(fd)
	n, _ := syscall.Read(fd, buf)
	return string(buf[:max(n, 0)])
}
