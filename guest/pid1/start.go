package pid1

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// starting is what an execution has until its program runs:
//
//	asked -> forked -> the program runs, or why it does not
//
// asked: the lookup finds out whom it runs as. forked: its process goes to its directory and opens its program. Both take as long as what
// lies in the sandbox lets them, and neither holds up anybody else; after the limit the start is given up.
type starting struct {
	*protocol.Exec
	descriptors // until it is forked
	primary     *primaryStart
	by          time.Time // by the sandbox's clock
	launch      launch
	attempt     *attempt           // nil until the lookup has answered
	waits       bool               // for a forker
	report      int                // descriptor that tells how the start went, of a copy; -1 for none
	early       []protocol.Message // came for the command meanwhile
}

// primaryStart is of what Boot starts.
type primaryStart struct {
	stderr int    // descriptor, for what goes wrong
	what   string // it is that starts
	waits  bool   // for the entrypoint to hand over
}

// startLimit is how long a start may take, which takes a millisecond.
const startLimit = 10 * time.Second

// begin has the lookup asked; what st holds is taken over.
func (s *sandbox) begin(e *execution, st *starting, user string) {
	st.by, st.report = s.clock.now().Add(s.startLimit), -1
	e.starting = st
	s.running[e] = struct{}{}
	s.due(e.deadline())
	if s.stopping {
		s.refuse(e, &failure{protocol.CodeStopping, "exec: the sandbox is stopping"})
		return
	}
	s.questions = append(s.questions, question{of: e, user: user, primary: e.primary})
}

// launch goes on with a start that the lookup has answered, unless it is over.
func (s *sandbox) launch(a answer) {
	e := a.of
	st := e.starting
	if st == nil {
		return
	}
	if st.primary != nil {
		s.compose(st, a.program)
	}
	problem := a.problem
	if problem == nil {
		problem = s.prepare(st, a)
	}
	var mine []int
	if problem == nil {
		d := st.descriptors
		st.descriptors = noDescriptors
		st.launch.files, mine, problem = s.connect(e, st.Exec, d, a.Account)
	}
	if problem != nil {
		s.refuse(e, problem)
		return
	}
	e.tag, e.oomKills = s.tags.Next(), s.oom.Kills()
	st.launch.tag, st.launch.tagHard = e.tag, s.tags.Hard
	attempt, err := st.launch.attempt(e, mine)
	if err != nil {
		kernel.CloseAll(mine)
		s.refuse(e, forkFailure(err, st.launch.argv[0]))
		return
	}
	st.attempt, st.waits = attempt, true
	if s.unforked = append(s.unforked, e); len(s.unforked) == 1 {
		s.forkBy = s.clock.now().Add(forkPatience)
		s.due(s.forkBy)
	}
}

// given notes that the start which has waited longest is a forker's.
func (s *sandbox) given() {
	e := s.unforked[0]
	e.starting.waits = false
	s.unforked = s.unforked[1:]
	s.forkBy = s.clock.now().Add(forkPatience) // one timer serves all of a burst: it is not set anew
	s.forking = append(s.forking, e)
	s.childless = false
}

// copy forks the start that has waited longest for a forker.
func (s *sandbox) copy() {
	e := s.unforked[0]
	s.given()
	from, err := e.starting.attempt.copy()
	if err != nil {
		s.forking = s.forking[:len(s.forking)-1]
		kernel.CloseAll(e.starting.attempt.mine)
		s.refuse(e, forkFailure(err, e.starting.launch.argv[0]))
		return
	}
	e.starting.report = from
	s.pump.awaitStart(e, from)
}

// settleForks finds out the pids of what has been forked: of all, or of those that are there by now.
func (s *sandbox) settleForks(all bool) {
	forking := s.forking
	s.forking = nil
	var failed []*execution
	for _, e := range forking {
		a := e.starting.attempt
		if !all && atomic.LoadInt32(&a.pid) == 0 {
			s.forking = append(s.forking, e)
			continue
		}
		if a.await() < 0 {
			failed = append(failed, e)
			continue
		}
		e.pid = int(a.pid)
		s.leaders[e.pid] = e
	}
	for _, e := range failed {
		s.refuse(e, forkFailure(syscall.Errno(-e.starting.attempt.pid), e.starting.launch.argv[0]))
	}
}

// prepare makes all of the launch but its files.
func (s *sandbox) prepare(st *starting, a answer) (problem *failure) {
	l := &st.launch
	l.Account, l.switchUser, l.terminal = a.Account, s.canSwap, st.Terminal != nil
	l.argv, l.dir = st.Argv, kernel.Join(s.workdir, st.Cwd)
	if l.env, problem = environment(s.environ, st.Env, l.Account, a.rootHome); problem != nil {
		return problem
	}
	if home, _ := getenv(l.env, "HOME"); st.FromHome && strings.HasPrefix(home, "/") {
		l.dir = kernel.Join(home, st.Cwd)
	}
	if _, named := getenv(l.env, "TERM"); l.terminal && !named {
		l.env = append(l.env, "TERM=xterm-256color")
	}
	if ofDaemon(st.ID) {
		l.paths = []string{ownProgram}
		return nil
	}
	l.paths, problem = candidates(l.argv, l.env)
	return problem
}

// ofDaemon tells whether a command is the daemon's own, which reads its output from a pipe.
func ofDaemon(id string) bool { return strings.HasPrefix(id, protocol.InsidePrefix) }

// ownProgram is, for a child that has not become a program yet, this one, whatever lies at the path that it came from.
const ownProgram = "/proc/self/exe"

// settleStart looks whether the program of e runs; it does nothing when that is not known yet.
func (s *sandbox) settleStart(e *execution) {
	st := e.starting
	if st == nil || e.pid == 0 {
		return
	}
	known := st.attempt.over.Load()
	r := st.attempt.told // after that
	if st.report >= 0 {
		n, err := syscall.Read(st.report, unsafe.Slice((*byte)(unsafe.Pointer(&r)), reportSize))
		known = n == reportSize || err == nil
	}
	switch {
	case r.errno != 0 && (known || e.exited):
		s.refuse(e, st.launch.startFailure(r))
		return
	case !known && !e.exited:
		return
	}
	s.endStart(e)
	if e.id != "" {
		s.send(encode(&protocol.Started{ID: e.id, PID: e.pid}))
	}
	if st.primary != nil && !st.primary.waits {
		s.bootDone(protocol.BootStatus{State: protocol.BootHandedOver})
	}
	s.replay(st)
}

// endStart lets go of what a start holds.
func (s *sandbox) endStart(e *execution) {
	st := e.starting
	e.starting = nil
	s.questions = slices.DeleteFunc(s.questions, func(q question) bool { return q.of == e })
	if st.waits {
		s.unforked = slices.DeleteFunc(s.unforked, func(u *execution) bool { return u == e })
		kernel.CloseAll(st.attempt.mine)
	}
	kernel.CloseAll([]int{st.stdout, st.stderr, st.stdin, st.index})
	st.descriptors = noDescriptors
	if st.report >= 0 {
		s.pump.forgetStart(st.report)
		syscall.Close(st.report)
	}
	if st.primary != nil {
		syscall.Close(st.primary.stderr)
	}
}

// replay does what came for the command while it started.
func (s *sandbox) replay(st *starting) {
	for _, m := range st.early {
		s.receive(received{m: m})
	}
}

// refuse ends a start that cannot succeed.
func (s *sandbox) refuse(e *execution, problem *failure) {
	st := e.starting
	if st.primary != nil {
		syscall.Write(st.primary.stderr, []byte("agbox-init: "+st.primary.what+": "+problem.message+"\n"))
	}
	s.endStart(e)
	s.end(e, e.failed(problem))
	s.replay(st)
}

// giveUp ends a start that takes too long.
func (s *sandbox) giveUp(e *execution) {
	what := "the accounts of the sandbox did not answer"
	if e.pid > 0 {
		syscall.Kill(e.pid, syscall.SIGKILL) // not reaped yet
		what = "its directory or its program did not answer"
	}
	s.refuse(e, &failure{protocol.CodeStartFailed, "exec: given up after " + s.startLimit.String() + ": " + what +
		"; look for a process in the sandbox that holds a lease on it, or a mount that is not served"})
}

// cancel ends a command, be it that it runs or that it would.
func (s *sandbox) cancel(e *execution, grace time.Duration) {
	st := e.starting
	if st == nil || st.attempt != nil && !st.waits {
		e.cancel(grace, s)
		return
	}
	e.cancelled, e.ended, e.status = true, time.Now(), syscall.WaitStatus(syscall.SIGTERM)
	s.endStart(e)
	s.end(e, e.result())
	s.replay(st)
}

// identify gives a sandbox that was made ahead what it lacks, before anything runs in it. The lookup hears of it before any question.
func identify(s *sandbox, as *protocol.Identity) {
	if as == nil || s.booted {
		return
	}
	s.environ = overlaid(s.environ, as.Env)
	s.user, s.command = as.User, as.Command
	if as.Workdir != "" {
		s.workdir = as.Workdir
	}
	s.questions = append(s.questions, question{as: &identity{s.options, s.environ}})
}

// overlaid is base with entries in place of those of the same name, or after them.
func overlaid(base, entries []string) []string {
	base = slices.Clone(base)
	for _, entry := range entries {
		key, _, _ := strings.Cut(entry, "=")
		at := slices.IndexFunc(base, func(other string) bool { return strings.HasPrefix(other, key+"=") })
		if at < 0 {
			base = append(base, entry)
			continue
		}
		base[at] = entry
	}
	return base
}

// startPrimary runs the image's entrypoint or, without one, the main command, once in the life of init.
func (s *sandbox) startPrimary(fds []int) {
	if s.booted {
		kernel.CloseAll(fds)
		if s.boot.State != protocol.BootPending {
			s.send(encode(&protocol.Booted{Status: s.boot}))
		}
		return
	}
	files := 2
	if len(s.command) > 0 {
		files = 3
	}
	if len(fds) < files {
		kernel.CloseAll(fds)
		kernel.Warn("boot came without its " + strconv.Itoa(files) + " descriptors")
		return
	}
	kernel.CloseAll(fds[files:])
	s.booted = true
	e := newExecution("")
	e.primary = true
	if len(s.command) > 0 {
		e.id, e.record = protocol.CommandID, fds[2]
		s.execs[e.id] = e
	}
	if len(s.command)+len(s.entrypoint) == 0 {
		kernel.CloseAll(fds[:2])
		s.bootDone(protocol.BootStatus{State: protocol.BootNone})
		return
	}
	said, _ := kernel.Duplicate(fds[1])
	st := &starting{Exec: &protocol.Exec{MaxOutput: s.maxOutput}, descriptors: noDescriptors, primary: &primaryStart{stderr: said, what: "command"}}
	st.stdout, st.stderr = fds[0], fds[1]
	if len(s.entrypoint) > 0 {
		st.primary.what = "entrypoint"
	}
	s.begin(e, st, "")
}

// compose decides what the primary is started as: the command, the entrypoint that hands over to it, or the entrypoint
// with the command as its arguments.
func (s *sandbox) compose(st *starting, program bool) {
	st.primary.waits = len(s.entrypoint) > 0 && !(len(s.command) > 0 && program)
	switch {
	case st.primary.waits && len(s.command) > 0:
		st.Argv = slices.Concat(s.entrypoint, []string{os.Args[0], "handover", "--"}, s.command)
	case st.primary.waits:
		st.Argv = slices.Concat(s.entrypoint, []string{os.Args[0], "handover"})
	default:
		st.Argv = slices.Concat(s.entrypoint, s.command)
	}
}
