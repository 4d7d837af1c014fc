package main

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
// and /proc/<pid>/limits is readable by everybody. So before each fork init gives itself a number
// that nobody else has; all who carry it belong to that command.
//
// Other marks fall short: control groups are read-only in an unprivileged container, reading
// environments needs the right to ptrace, a session is left by setsid, and the chain of parents
// breaks when one dies. A process can remove the mark on purpose; it then lives until the sandbox
// stops, like any background process.
const (
	rlimitLocks = 10
	firstTag    = 1 << 40
)

type rlimit struct{ soft, hard uint64 }

// tagger hands out tags; 0 when limits cannot be set, because the container has a low hard limit.
type tagger struct{ last uint64 }

// next marks init itself, and with it whatever it forks until the next call.
func (t *tagger) next() uint64 {
	var old rlimit
	prlimit := func(set, get *rlimit) syscall.Errno {
		_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, rlimitLocks,
			uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), 0, 0)
		return errno
	}
	if prlimit(nil, &old) != 0 {
		return 0
	}
	if t.last < firstTag {
		t.last = firstTag
	}
	t.last++
	if prlimit(&rlimit{t.last, old.hard}, nil) != 0 {
		return 0
	}
	return t.last
}

// process is what /proc tells of one.
type process struct {
	pid, parent, group, session int
	tag                         uint64
	zombie                      bool
}

// processes lists all but init; false when /proc cannot be read.
func processes() ([]process, bool) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, false
	}
	var all []process
	buf := make([]byte, 4096)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == 1 {
			continue
		}
		p := process{pid: pid}
		if p.parseStat(readSome("/proc/"+name+"/stat", buf)) {
			p.parseLimits(readSome("/proc/"+name+"/limits", buf))
			all = append(all, p)
		}
	}
	return all, len(names) > 0
}

// parseStat reads "pid (name) state parent group session ..."; the name may hold anything.
func (p *process) parseStat(stat string) bool {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) < 4 {
		return false
	}
	p.zombie = f[0] == "Z" || f[0] == "X"
	p.parent, _ = strconv.Atoi(f[1])
	p.group, _ = strconv.Atoi(f[2])
	p.session, _ = strconv.Atoi(f[3])
	return true
}

func (p *process) parseLimits(limits string) {
	_, rest, _ := strings.Cut(limits, "Max file locks")
	if f := strings.Fields(rest); len(f) > 0 {
		p.tag, _ = strconv.ParseUint(f[0], 10, 64)
	}
}

// tree is the living part of a command's processes.
type tree struct {
	alive  bool
	groups map[int]struct{}
}

// treeOf finds them by tag or, without one, as the leader's session and all of its descendants.
// A process group lies within one session, and a session within one command: so groups can be
// signalled as a whole, which a process that forks ahead of its killer does not survive.
func treeOf(leader int, tag uint64, all []process, readable bool) tree {
	t := tree{groups: map[int]struct{}{}}
	if !readable {
		t.alive = syscall.Kill(-leader, 0) == nil
		t.groups[leader] = struct{}{}
		return t
	}
	members := map[int]bool{leader: true}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			in := p.tag == tag
			if tag == 0 {
				in = p.session == leader || members[p.parent]
			}
			if in && !members[p.pid] {
				members[p.pid] = true
				grown = tag == 0
			}
		}
	}
	for _, p := range all {
		if members[p.pid] && !p.zombie {
			t.alive = true
			if p.group > 1 {
				t.groups[p.group] = struct{}{}
			}
		}
	}
	return t
}

func (t tree) signal(signals ...syscall.Signal) {
	for group := range t.groups {
		for _, sig := range signals {
			syscall.Kill(-group, sig)
		}
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
