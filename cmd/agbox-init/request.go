package main

import (
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/agbox-dev/agbox/dockerrt/initproto"
)

// receive does what the daemon says. Descriptors that a message has too many are closed.
func (s *sandbox) receive(r received) {
	switch m := r.m.(type) {
	case nil:
		s.greet(r.from)
	case *initproto.Boot:
		s.makePlaces()
		s.startPrimary(r.fds)
	case *initproto.Exec:
		s.makePlaces()
		s.exec(m, r.fds)
	case *initproto.Cancel:
		if e := s.execs[m.ID]; e != nil {
			e.cancel(m.Grace, s.clock.now())
			s.settleCancelled()
		}
		closeAll(r.fds)
	case *initproto.Ack:
		if e := s.execs[m.ID]; e != nil && e.frame != nil {
			delete(s.execs, m.ID)
			s.past.add(m.ID, e.frame)
		}
		closeAll(r.fds)
	case *initproto.Stop:
		s.stop(m.Grace)
		closeAll(r.fds)
	case *initproto.Signal:
		s.send(encode(s.signal(m)))
		closeAll(r.fds)
	case *initproto.Resize:
		s.send(encode(s.resize(m)))
		closeAll(r.fds)
	case *initproto.CloseStdin:
		if e := s.execs[m.ID]; e != nil {
			e.closeStdin()
		}
		closeAll(r.fds)
	case *initproto.Freeze:
		s.clock.freeze()
		s.send(encode(&initproto.Frozen{}))
		closeAll(r.fds)
	case *initproto.Thaw:
		s.clock.thaw()
		closeAll(r.fds)
	default:
		closeAll(r.fds)
	}
}

// signal sends a signal to the leader of a command. Its pid is nobody else's until it is reaped.
func (s *sandbox) signal(m *initproto.Signal) *initproto.Signalled {
	answer := &initproto.Signalled{Token: m.Token}
	var e *execution
	if e, answer.Outcome = s.alive(m.ID); answer.Outcome != initproto.SignalSent {
		return answer
	}
	sig := syscall.Signal(m.Signal)
	if err := syscall.Kill(e.pid, sig); err != nil {
		errno, _ := err.(syscall.Errno)
		answer.Outcome, answer.Errno = initproto.SignalRefused, int(errno)
	} else if sig == syscall.SIGKILL {
		e.signalled = true
	}
	return answer
}

// alive finds a command whose leader was not reaped, else tells why there is none.
func (s *sandbox) alive(id string) (*execution, initproto.SignalOutcome) {
	switch e := s.execs[id]; {
	case e == nil && s.past.frames[id] == nil:
		return nil, initproto.SignalExecUnknown
	case e == nil || e.exited || e.frame != nil:
		return nil, initproto.SignalExecEnded
	default:
		return e, initproto.SignalSent
	}
}

// greet says hello on a new connection and repeats every result that is not acknowledged.
func (s *sandbox) greet(daemon *session) {
	s.daemon = daemon
	hello := &initproto.Hello{
		Version: initproto.Version, InitVersion: version, Booted: s.booted, Status: s.boot,
		Frozen: s.clock.frozen(), Indexes: true,
	}
	for _, e := range s.execs {
		known := initproto.KnownExec{ID: e.id}
		if e.frame == nil {
			known.PID = e.pid
		}
		hello.Execs = append(hello.Execs, known)
	}
	s.send(encode(hello))
	for _, e := range s.execs {
		if e.frame != nil {
			s.send(e.frame)
		}
	}
}

// exec starts a command, or attaches to one that is known.
func (s *sandbox) exec(m *initproto.Exec, fds []int) {
	if e := s.execs[m.ID]; e != nil {
		closeAll(fds)
		if e.frame != nil {
			s.send(e.frame)
		} else {
			s.send(encode(&initproto.Started{ID: e.id, PID: e.pid}))
		}
		return
	}
	if frame := s.past.frames[m.ID]; frame != nil {
		closeAll(fds)
		s.send(frame)
		return
	}
	if m.ID == initproto.CommandID {
		closeAll(fds)
		s.send(encode(newExecution(m.ID).failed(&failure{initproto.CodeStartFailed,
			"exec: the sandbox has no main command, or it was not started yet, or its result was acknowledged long ago"})))
		return
	}
	if m.ID == "" {
		closeAll(fds)
		warn("an exec came without an id")
		return
	}
	d, complete := assign(m.Roles, fds)
	if !complete {
		warn("exec " + m.ID + " came without its three descriptors")
		return
	}
	e := newExecution(m.ID)
	e.record, e.keeper, e.grace = d.record, d.keeper, m.Grace
	s.execs[m.ID] = e
	if m.Timeout > 0 {
		e.timeoutAt = s.clock.now().Add(m.Timeout)
	}
	if problem := s.start(e, m, d); problem != nil {
		s.end(e, e.failed(problem))
		return
	}
	s.send(encode(&initproto.Started{ID: e.id, PID: e.pid}))
}

// start runs the command of m; what d holds for it is taken over.
func (s *sandbox) start(e *execution, m *initproto.Exec, d descriptors) *failure {
	l, problem := s.prepare(e, m)
	if problem != nil {
		closeAll([]int{d.stdout, d.stderr, d.stdin, d.index})
		return problem
	}
	files, mine, problem := s.connect(e, m, d, l.account)
	if problem != nil {
		return problem
	}
	// Nothing is reaped between the fork and the entry in leaders: it is this goroutine that reaps.
	e.tag, e.oomKills = s.tags.next(), s.oom.kills()
	pid, err := l.spawn(files, s.canSwap, m.Terminal != nil)
	closeAll(mine)
	if err != nil {
		return startFailure(err, l.path, l.dir, l.account)
	}
	e.pid = pid
	s.leaders[pid] = e
	s.running[e] = struct{}{}
	s.childless = false
	return nil
}

// prepare finds out all that a start needs to know, and whether it can succeed.
func (s *sandbox) prepare(e *execution, m *initproto.Exec) (l launch, problem *failure) {
	l.argv = m.Argv
	if s.stopping {
		return l, &failure{initproto.CodeStopping, "exec: the sandbox is stopping"}
	}
	if e.primary {
		l.account, problem = s.primaryAccount()
	} else {
		l.account, problem = s.account(m.User)
	}
	if problem == nil {
		l.env, problem = environment(s.environ, m.Env, l.account, s.rootHome)
	}
	if _, named := getenv(l.env, "TERM"); problem == nil && m.Terminal != nil && !named {
		l.env = append(l.env, "TERM=xterm-256color")
	}
	if problem == nil {
		l.dir, problem = directory(m.Cwd, s.workdir)
	}
	if problem == nil {
		l.path, problem = find(l.argv, l.env, l.dir)
	}
	return l, problem
}

// account resolves an exec's user; "" is --user, else the sandbox's rule.
func (s *sandbox) account(user string) (account, *failure) {
	if user == "" {
		user = s.user
	}
	var a account
	var problem string
	if user == "" {
		a, problem = s.users.rule(s.imageUser)
	} else {
		a, problem = s.users.lookup(user)
	}
	if s.canSwap {
		if problem != "" {
			return a, &failure{initproto.CodeUserUnknown, problem}
		}
		return a, nil
	}
	self := s.self()
	if user != "" && problem != "" {
		return a, &failure{initproto.CodeUserUnknown, problem}
	}
	if user != "" && a.uid != self.uid {
		return a, &failure{initproto.CodeUserUnknown, "user " + strconv.Quote(user) +
			": the container runs as user " + self.label() + " without the right to switch to another"}
	}
	return self, nil
}

// primaryAccount is whom Docker would run the image's entrypoint and the main command as.
func (s *sandbox) primaryAccount() (account, *failure) {
	if s.user != "" {
		return s.account(s.user)
	}
	if !s.canSwap {
		return s.self(), nil
	}
	a, problem := s.users.image(s.imageUser)
	if problem != "" {
		return a, &failure{initproto.CodeUserUnknown, problem}
	}
	return a, nil
}

func (s *sandbox) self() account {
	home, _ := getenv(s.environ, "HOME")
	return s.users.self(home)
}

// startPrimary runs the image's entrypoint or, without one, the main command, once in the life of init.
func (s *sandbox) startPrimary(fds []int) {
	if s.booted {
		closeAll(fds)
		if s.boot.State != initproto.BootPending {
			s.send(encode(&initproto.Booted{Status: s.boot}))
		}
		return
	}
	files := 2
	if len(s.command) > 0 {
		files = 3
	}
	if len(fds) < files {
		closeAll(fds)
		warn("boot came without its " + strconv.Itoa(files) + " descriptors")
		return
	}
	closeAll(fds[files:])
	s.booted = true
	e := newExecution("")
	e.primary = true
	argv, what := s.command, "command"
	waits := len(s.entrypoint) > 0 && !(len(s.command) > 0 && s.isProgram(s.entrypoint))
	switch {
	case waits && len(s.command) > 0:
		argv, what = slices.Concat(s.entrypoint, []string{os.Args[0], "handover", "--"}, s.command), "entrypoint"
	case waits:
		argv, what = slices.Concat(s.entrypoint, []string{os.Args[0], "handover"}), "entrypoint"
	case len(s.entrypoint) > 0:
		argv, what = slices.Concat(s.entrypoint, s.command), "entrypoint"
	}
	if len(s.command) > 0 {
		e.id, e.record = initproto.CommandID, fds[2]
		s.execs[e.id] = e
	}
	if len(argv) == 0 {
		closeAll(fds[:2])
		s.bootDone(initproto.BootStatus{State: initproto.BootNone})
		return
	}
	said, _ := syscall.Dup(fds[1])
	syscall.CloseOnExec(said)
	defer syscall.Close(said)
	d := descriptors{stdout: fds[0], stderr: fds[1], record: -1, stdin: -1, keeper: -1, index: -1}
	if problem := s.start(e, &initproto.Exec{Argv: argv, MaxOutput: s.maxOutput}, d); problem != nil {
		syscall.Write(said, []byte("agbox-init: "+what+": "+problem.message+"\n"))
		s.end(e, e.failed(problem))
		return
	}
	if !waits {
		s.bootDone(initproto.BootStatus{State: initproto.BootHandedOver})
	}
}

// isProgram tells whether the entrypoint is an ELF file: it takes the command as its arguments and may never run what
// hands over. A script prepares, and ends in exec "$@".
func (s *sandbox) isProgram(entrypoint []string) bool {
	path, problem := find(entrypoint, s.environ, s.workdir)
	if problem != nil {
		return false
	}
	file, err := os.Open(join(s.workdir, path))
	if err != nil {
		return false
	}
	defer file.Close()
	var magic [4]byte
	n, _ := file.Read(magic[:])
	return string(magic[:n]) == "\x7fELF"
}
