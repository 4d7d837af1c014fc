package protocol

// Signal sends a signal to the leader of a running command, and to no other of its processes.
type Signal struct {
	// Token is the daemon's choice; the answer carries it.
	Token  uint64
	ID     string
	Signal int
}

// Signalled answers Signal and Resize.
type Signalled struct {
	Token   uint64
	Outcome SignalOutcome
	// Errno is the reason with SignalRefused, the kernel's or ENOTTY.
	Errno int
}

// SignalOutcome is what became of a Signal.
type SignalOutcome int

const (
	// SignalSent: the leader had not been reaped and was sent the signal, or its terminal has the new size.
	SignalSent SignalOutcome = iota
	// SignalExecUnknown: init knows no such exec, or has forgotten it long after its Ack.
	SignalExecUnknown
	// SignalExecEnded: the leader has ended.
	SignalExecEnded
	// SignalRefused: the kernel did not take it: no such signal, or no right to send it; or there is no terminal.
	SignalRefused
)

func (m *Signal) put(e *encoder) {
	e.uint(1, m.Token)
	e.str(2, m.ID)
	e.int(3, int64(m.Signal))
}

func (m *Signal) set(f field) bool {
	switch f.tag {
	case 1:
		return f.uint(&m.Token)
	case 2:
		return f.str(&m.ID)
	case 3:
		return setInt(f, &m.Signal)
	}
	return true
}

func (m *Signalled) put(e *encoder) {
	e.uint(1, m.Token)
	e.int(2, int64(m.Outcome))
	e.int(3, int64(m.Errno))
}

func (m *Signalled) set(f field) bool {
	switch f.tag {
	case 1:
		return f.uint(&m.Token)
	case 2:
		return setInt(f, &m.Outcome)
	case 3:
		return setInt(f, &m.Errno)
	}
	return true
}
