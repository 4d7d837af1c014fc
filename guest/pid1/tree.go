package pid1

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
	rlimitLocks = 10
	firstTag    = 1 << 40
)

type rlimit struct{ soft, hard uint64 }

// tagger hands out tags; 0 when limits cannot be set, because the container has a low hard limit.
type tagger struct {
	last uint64
	hard uint64
}

func newTagger() tagger {
	var own rlimit
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, rlimitLocks, 0, uintptr(unsafe.Pointer(&own)), 0, 0)
	if errno != 0 {
		return tagger{}
	}
	return tagger{last: firstTag, hard: own.hard}
}

func (t *tagger) next() uint64 {
	if t.last >= t.hard {
		return 0
	}
	t.last++
	return t.last
}

// given tells whether it has handed out a tag.
func (t *tagger) given(tag uint64) bool { return tag > firstTag && tag <= t.last }

// process is what /proc tells of one.
type process struct {
	pid, parent, group, session int
	started                     uint64 // tells a reused pid
	tag                         uint64
	zombie                      bool
}

// processes lists all but init; nil when /proc cannot be read.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil || len(names) == 0 {
		return nil
	}
	all := []process{}
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
	return all
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

// tree looks for what lives of e among all processes. The leader is known by its pid, which is nobody else's until it is reaped, the others by
// their tag. Where nothing keeps a process from taking that off, or there is none, the family is looked at as well.
func (s *sandbox) tree(e *execution, all []process) tree {
	t := tree{groups: map[int]struct{}{}}
	if all == nil {
		if syscall.Kill(-e.pid, 0) == nil {
			t.groups[e.pid] = struct{}{}
		}
		return t
	}
	family := e.tag == 0 || !s.sealed
	if family {
		s.adopt(e, all)
	}
	for _, p := range all {
		member := e.tag != 0 && p.tag == e.tag || p.pid == e.pid && !e.exited || family && e.members[p.pid] == p.started
		if member && !p.zombie {
			t.add(p)
		}
	}
	if family && e.exited && !t.alive() && len(s.running) == 1 {
		for _, p := range s.strays(e, all) {
			t.add(p)
		}
	}
	return t
}

func (t *tree) add(p process) {
	t.pids = append(t.pids, p.pid)
	if p.group > 1 {
		t.groups[p.group] = struct{}{}
	}
}

// strays are processes that have no tag and whose family is gone, and that can be of nobody but e, the one command that runs: others have
// ended, and what they left behind is older. What was not started by init, but by way of the engine, has a parent outside.
func (s *sandbox) strays(e *execution, all []process) (found []process) {
	if e.born == 0 {
		return nil
	}
	parents := make(map[int]int, len(all))
	for _, p := range all {
		parents[p.pid] = p.parent
	}
	for _, p := range all {
		top := p.pid
		for range all {
			if parents[top] <= 1 {
				break
			}
			top = parents[top]
		}
		if !p.zombie && !s.tags.given(p.tag) && p.started >= e.born && parents[top] == 1 {
			found = append(found, p)
		}
	}
	return found
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

// maxSweeps bounds how long init looks for what forks faster than it is stopped. The next death in the tree goes on with it.
const maxSweeps = 8

// destroy kills what lives of e. All of it is stopped first, over and over until nothing is new: what is killed makes room under the limit of
// processes for what still forks, what is stopped does not.
func (s *sandbox) destroy(e *execution, t tree) {
	stopped := map[int]struct{}{}
	for range maxSweeps {
		before := len(stopped)
		for group := range t.groups {
			syscall.Kill(-group, syscall.SIGSTOP)
		}
		for _, pid := range t.pids {
			stopped[pid] = struct{}{}
			syscall.Kill(pid, syscall.SIGSTOP)
		}
		if len(stopped) == before {
			break
		}
		t = s.tree(e, processes())
	}
	t.kill()
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

// adopt notes who is of e's family: who has its tag, the leader's session, all descendants, and whoever is in
// the session of a member; nobody who has the tag of another. They are remembered, because the chain of parents breaks as they die.
func (s *sandbox) adopt(e *execution, all []process) {
	if e.members == nil {
		e.members, e.sessions = map[int]uint64{}, map[int]bool{e.pid: false}
	}
	started := make(map[int]uint64, len(all))
	for _, p := range all {
		started[p.pid] = p.started
	}
	if e.born == 0 && !e.exited {
		e.born = started[e.pid]
	}
	for pid, at := range e.members {
		if started[pid] != at {
			delete(e.members, pid)
		}
	}
	e.forgetSessions(all)
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			_, known := e.members[p.pid]
			_, child := e.members[p.parent]
			_, fellow := e.sessions[p.session]
			tagged := e.tag != 0 && p.tag == e.tag
			if !known && (tagged || (child || fellow) && !s.tags.given(p.tag)) {
				e.members[p.pid], e.sessions[p.session] = p.started, false
				grown = true
			}
		}
	}
}

// forgetSessions forgets those that nobody has been in at two looks; one look may miss who forks meanwhile.
func (e *execution) forgetSessions(all []process) {
	inhabited := make(map[int]bool, len(all))
	for _, p := range all {
		inhabited[p.session] = true
	}
	for session, empty := range e.sessions {
		if empty && !inhabited[session] && (session != e.pid || e.exited) {
			delete(e.sessions, session)
		} else {
			e.sessions[session] = !inhabited[session]
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
