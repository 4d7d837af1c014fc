package pid1

import (
	"syscall"

	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// receive does what the daemon says. Descriptors that a message has too many are closed.
func (s *sandbox) receive(r received) {
	if s.tooEarly(r.m) {
		kernel.CloseAll(r.fds)
		return
	}
	switch r.m.(type) {
	case *protocol.Exec, *protocol.Ack:
	default:
		s.settleForks(true)
		s.rearm = true
	}
	switch m := r.m.(type) {
	case nil:
		s.greet(r.from)
	case *protocol.Boot:
		identify(s, m.As)
		s.startPrimary(r.fds)
	case *protocol.Exec:
		s.exec(m, r.fds)
	case *protocol.Cancel:
		if e := s.execs[m.ID]; e != nil {
			s.cancel(e, m.Grace)
			s.settleCancelled()
		}
		kernel.CloseAll(r.fds)
	case *protocol.Ack:
		if e := s.execs[m.ID]; e != nil && e.frame != nil {
			delete(s.execs, m.ID)
			s.past.add(m.ID, e.frame)
		}
		kernel.CloseAll(r.fds)
	case *protocol.Stop:
		s.stop(m.Grace)
		kernel.CloseAll(r.fds)
	case *protocol.Signal:
		s.send(encode(s.signal(m)))
		kernel.CloseAll(r.fds)
	case *protocol.Resize:
		s.send(encode(s.resize(m)))
		kernel.CloseAll(r.fds)
	case *protocol.Dial:
		r.from.handDial(m)
		kernel.CloseAll(r.fds)
	case *protocol.CloseStdin:
		if e := s.execs[m.ID]; e != nil {
			e.closeStdin()
		}
		kernel.CloseAll(r.fds)
	case *protocol.Freeze:
		s.clock.freeze()
		s.send(encode(&protocol.Frozen{}))
		kernel.CloseAll(r.fds)
	case *protocol.Thaw:
		s.clock.thaw()
		kernel.CloseAll(r.fds)
	default:
		kernel.CloseAll(r.fds)
	}
}

// tooEarly keeps what is for a program that does not run yet.
func (s *sandbox) tooEarly(m protocol.Message) bool {
	var id string
	switch m := m.(type) {
	case *protocol.Signal:
		id = m.ID
	case *protocol.Resize:
		id = m.ID
	}
	e := s.execs[id]
	if e == nil || e.starting == nil {
		return false
	}
	e.starting.early = append(e.starting.early, m)
	return true
}

// signal sends a signal to the leader of a command. Its pid is nobody else's until it is reaped.
func (s *sandbox) signal(m *protocol.Signal) *protocol.Signalled {
	answer := &protocol.Signalled{Token: m.Token}
	var e *execution
	if e, answer.Outcome = s.alive(m.ID); answer.Outcome != protocol.SignalSent {
		return answer
	}
	sig := syscall.Signal(m.Signal)
	if err := syscall.Kill(e.pid, sig); err != nil {
		errno, _ := err.(syscall.Errno)
		answer.Outcome, answer.Errno = protocol.SignalRefused, int(errno)
	} else if sig == syscall.SIGKILL {
		e.signalled = true
	}
	return answer
}

// alive finds a command whose leader was not reaped, else tells why there is none.
func (s *sandbox) alive(id string) (*execution, protocol.SignalOutcome) {
	switch e := s.execs[id]; {
	case e == nil && s.past.frames[id] == nil:
		return nil, protocol.SignalExecUnknown
	case e == nil || e.exited || e.frame != nil:
		return nil, protocol.SignalExecEnded
	default:
		return e, protocol.SignalSent
	}
}

// greet says hello on a new connection and repeats every result that is not acknowledged.
func (s *sandbox) greet(daemon *session) {
	s.daemon = daemon
	hello := &protocol.Hello{
		Version: protocol.Version, InitVersion: Version, Booted: s.booted, Status: s.boot,
		Frozen: s.clock.frozen(),
	}
	for _, e := range s.execs {
		known := protocol.KnownExec{ID: e.id}
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
func (s *sandbox) exec(m *protocol.Exec, fds []int) {
	if e := s.execs[m.ID]; e != nil {
		kernel.CloseAll(fds)
		switch {
		case e.frame != nil:
			s.send(e.frame)
		case e.starting == nil: // else it is said once it runs
			s.send(encode(&protocol.Started{ID: e.id, PID: e.pid}))
		}
		return
	}
	if frame := s.past.frames[m.ID]; frame != nil {
		kernel.CloseAll(fds)
		s.send(frame)
		return
	}
	if m.ID == protocol.CommandID {
		kernel.CloseAll(fds)
		s.send(encode(newExecution(m.ID).failed(&failure{protocol.CodeStartFailed,
			"exec: the sandbox has no main command, or it was not started yet, or its result was acknowledged long ago"})))
		return
	}
	if m.ID == "" {
		kernel.CloseAll(fds)
		kernel.Warn("an exec came without an id")
		return
	}
	d, complete := assign(m.Roles, fds)
	if !complete {
		kernel.Warn("exec " + m.ID + " came without its three descriptors")
		return
	}
	e := newExecution(m.ID)
	e.record, e.keeper, e.grace = d.record, d.keeper, m.Grace
	s.execs[m.ID] = e
	if m.Timeout > 0 {
		e.timeoutAt = s.clock.now().Add(m.Timeout)
	}
	d.record, d.keeper = -1, -1
	s.begin(e, &starting{Exec: m, descriptors: d}, m.User)
}
