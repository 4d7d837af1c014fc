package pid1

import (
	"syscall"

	"github.com/agbox-dev/agbox/guest/process"
)

// tree is the living part of a command's processes.
type tree struct {
	pids   []int
	groups map[int]struct{}
}

// tree looks for what lives of e among all processes. The leader is known by its pid, which is nobody else's until it is reaped, the others by
// their tag. Where nothing keeps a process from taking that off, or there is none, the family is looked at as well.
func (s *sandbox) tree(e *execution, all []process.Process) tree {
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
		started, relative := e.members[p.PID]
		member := e.tag != 0 && p.Tag == e.tag || p.PID == e.pid && !e.exited || family && relative && started == p.Started
		if member && !p.Zombie {
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

func (t *tree) add(p process.Process) {
	t.pids = append(t.pids, p.PID)
	if p.Group > 1 {
		t.groups[p.Group] = struct{}{}
	}
}

// strays are processes that have no tag and whose family is gone, and that can be of nobody but e, the one command that runs: others have
// ended, and what they left behind is older. What was not started by init, but through the engine, has a parent outside.
func (s *sandbox) strays(e *execution, all []process.Process) (found []process.Process) {
	if e.born == 0 {
		return nil
	}
	parents := make(map[int]int, len(all))
	for _, p := range all {
		parents[p.PID] = p.Parent
	}
	for _, p := range all {
		top := p.PID
		for range all {
			if parents[top] <= 1 {
				break
			}
			top = parents[top]
		}
		if !p.Zombie && !s.tags.Given(p.Tag) && p.Started >= e.born && parents[top] == 1 {
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
		t = s.tree(e, process.All())
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
func (s *sandbox) adopt(e *execution, all []process.Process) {
	if e.members == nil {
		e.members, e.sessions = map[int]uint64{}, map[int]bool{e.pid: false}
	}
	started := make(map[int]uint64, len(all))
	for _, p := range all {
		started[p.PID] = p.Started
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
			_, known := e.members[p.PID]
			_, child := e.members[p.Parent]
			_, fellow := e.sessions[p.Session]
			tagged := e.tag != 0 && p.Tag == e.tag
			if !known && (tagged || (child || fellow) && !s.tags.Given(p.Tag)) {
				e.members[p.PID], e.sessions[p.Session] = p.Started, false
				grown = true
			}
		}
	}
}

// forgetSessions forgets those that nobody has been in at two looks; one look may miss who forks meanwhile.
func (e *execution) forgetSessions(all []process.Process) {
	inhabited := make(map[int]bool, len(all))
	for _, p := range all {
		inhabited[p.Session] = true
	}
	for session, empty := range e.sessions {
		if empty && !inhabited[session] && (session != e.pid || e.exited) {
			delete(e.sessions, session)
		} else {
			e.sessions[session] = !inhabited[session]
		}
	}
}
