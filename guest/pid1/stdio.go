package pid1

import (
	"syscall"

	"github.com/agbox-dev/agbox/guest/account"
	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// descriptors are what an Exec or Boot brought, -1 for what it did not. Record and keeper go to the
// execution, the others are for its start.
type descriptors struct{ stdout, stderr, record, stdin, keeper, index int }

var noDescriptors = descriptors{-1, -1, -1, -1, -1, -1}

// assign gives each descriptor its role; the caller's are closed where that fails, for want of one
// of the three that every command has, and where a role is unknown or comes twice.
func assign(roles []string, fds []int) (descriptors, bool) {
	d := noDescriptors
	places := map[string]*int{
		protocol.RoleStdout: &d.stdout, protocol.RoleStderr: &d.stderr, protocol.RoleRecord: &d.record,
		protocol.RoleStdin: &d.stdin, protocol.RoleStdinKeeper: &d.keeper,
		protocol.RoleIndex: &d.index,
	}
	matched := len(roles) == len(fds)
	for i, fd := range fds {
		place := (*int)(nil)
		if matched {
			place = places[roles[i]]
		}
		if place == nil || *place >= 0 {
			syscall.Close(fd)
			continue
		}
		*place = fd
	}
	if d.stdout < 0 || d.stderr < 0 || d.record < 0 {
		kernel.CloseAll([]int{d.stdout, d.stderr, d.record, d.stdin, d.keeper, d.index})
		return d, false
	}
	return d, true
}

// connect makes the ends that a command gets as its descriptors 0 to 2. Those in mine are to be
// closed after the fork. What came in d for the start is taken over, also after a failure.
func (s *sandbox) connect(e *execution, m *protocol.Exec, d descriptors, a account.Account) (files [3]int, mine []int, problem *failure) {
	if m.Terminal != nil {
		return s.connectTerminal(e, m, d, a)
	}
	files[0] = s.null
	if d.stdin >= 0 {
		files[0], mine = d.stdin, []int{d.stdin}
	}
	for i, out := range []int{d.stdout, d.stderr} {
		if ofDaemon(m.ID) { // its reader is the daemon, and the pump not in between
			files[i+1], mine = out, append(mine, out)
			continue
		}
		var err error
		if e.streams[i], files[i+1], err = s.pump.attach(out, m.MaxOutput, a.UID, a.GID); err != nil {
			// The pump meets the end of a pipe whose write end is closed, and closes the rest.
			if i == 0 {
				mine = append(mine, d.stderr)
			}
			kernel.CloseAll(append(mine, d.index))
			return files, nil, &failure{protocol.CodeStartFailed, "exec: no pipe for the output: " + err.Error()}
		}
		mine = append(mine, files[i+1])
	}
	if d.index >= 0 {
		s.pump.keepIndex(e.streams, d.index)
	}
	return files, mine, nil
}

func (s *sandbox) connectTerminal(e *execution, m *protocol.Exec, d descriptors, a account.Account) (files [3]int, mine []int, problem *failure) {
	kernel.CloseAll([]int{d.stderr, d.index})
	master, slave, err := openTerminal(s.terminals, *m.Terminal, a)
	if err == nil {
		e.terminal, err = kernel.Duplicate(master)
		if err == nil {
			e.streams[0], err = s.pump.attachTerminal(master, d.stdout, m.MaxOutput, d.stdin)
		} else {
			kernel.CloseAll([]int{master, d.stdout, d.stdin})
		}
		if err != nil {
			syscall.Close(slave)
		}
	} else {
		kernel.CloseAll([]int{d.stdout, d.stdin})
	}
	if err != nil {
		return files, nil, terminalFailure(err)
	}
	return [3]int{slave, slave, slave}, []int{slave}, nil
}

// closeStdin ends the input for good. What types at a terminal hears of it by the end of the FIFO.
func (e *execution) closeStdin() {
	if e.keeper >= 0 {
		syscall.Close(e.keeper)
		e.keeper = -1
	}
}

// resize sets the size of the command's terminal.
func (s *sandbox) resize(m *protocol.Resize) *protocol.Signalled {
	answer := &protocol.Signalled{Token: m.Token}
	e, outcome := s.alive(m.ID)
	switch {
	case outcome != protocol.SignalSent:
		answer.Outcome = outcome
	case e.terminal < 0:
		answer.Outcome, answer.Errno = protocol.SignalRefused, int(syscall.ENOTTY)
	default:
		if err := setSize(e.terminal, m.Size); err != nil {
			errno, _ := err.(syscall.Errno)
			answer.Outcome, answer.Errno = protocol.SignalRefused, int(errno)
		}
	}
	return answer
}
