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
	started                     uint64 // tells a reused pid
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
	if len(f) < 20 {
		return false
	}
	p.zombie = f[0] == "Z" || f[0] == "X"
	p.parent, _ = strconv.Atoi(f[1])
	p.group, _ = strconv.Atoi(f[2])
	p.session, _ = strconv.Atoi(f[3])
	p.started, _ = strconv.ParseUint(f[19], 10, 64)
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
	pids   []int
	groups map[int]struct{}
}

// tree looks for what lives of e.
func (e *execution) tree(all []process, readable bool) tree {
	t := tree{groups: map[int]struct{}{}}
	if !readable {
		if syscall.Kill(-e.pid, 0) == nil {
			t.groups[e.pid] = struct{}{}
		}
		return t
	}
	if e.tag == 0 {
		e.adopt(all)
	}
	for _, p := range all {
		if p.zombie || e.tag != 0 && p.tag != e.tag || e.tag == 0 && e.members[p.pid] != p.started {
			continue
		}
		t.pids = append(t.pids, p.pid)
		if p.group > 1 {
			t.groups[p.group] = struct{}{}
		}
	}
	return t
}

func (t tree) alive() bool { return len(t.pids)+len(t.groups) > 0 }

// terminate asks each process once. What is forked after that is asked when the next is looked for.
func (e *execution) terminate(t tree) {
	if e.asked == nil {
		e.asked = map[int]struct{}{}
	}
	ask := func(pid int) {
		if _, done := e.asked[pid]; !done {
			e.asked[pid] = struct{}{}
			syscall.Kill(pid, syscall.SIGTERM)
			syscall.Kill(pid, syscall.SIGCONT) // a stopped process does not see TERM
		}
	}
	for _, pid := range t.pids {
		ask(pid)
	}
	if len(t.pids) == 0 {
		for group := range t.groups {
			ask(-group)
		}
	}
}

// kill goes to groups as a whole, which a process that forks ahead of its killer does not survive:
// a group lies within one session, and a session within one command. It goes to the processes as
// well, since one may have left its group meanwhile.
func (t tree) kill() {
	for group := range t.groups {
		syscall.Kill(-group, syscall.SIGKILL)
	}
	for _, pid := range t.pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// adopt stands in for tags: members are the leader's session, all descendants, and whoever is in
// the session of a member. They are remembered, because the chain of parents breaks as they die.
func (e *execution) adopt(all []process) {
	if e.members == nil {
		e.members, e.sessions = map[int]uint64{}, map[int]struct{}{e.pid: {}}
	}
	started := make(map[int]uint64, len(all))
	for _, p := range all {
		started[p.pid] = p.started
	}
	for pid, at := range e.members {
		if started[pid] != at {
			delete(e.members, pid)
		}
	}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			_, known := e.members[p.pid]
			_, child := e.members[p.parent]
			_, fellow := e.sessions[p.session]
			if !known && (child || fellow) {
				e.members[p.pid], e.sessions[p.session] = p.started, struct{}{}
				grown = true
			}
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
