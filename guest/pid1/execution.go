package pid1

import (
	"syscall"
	"time"

	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/process"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// execution is one command, from the Exec that asked for it until its result is acknowledged:
//
//	starting -> running -> exited -> draining -> ended
//
// starting: see there. running: the leader lives. exited: it was reaped; if the command was cancelled, some of its
// processes may live on. draining: the pump writes out what is in the pipes. ended: the record is
// written, frame is set, and everything else has been let go.
//
// What Boot starts is one as well: the image's entrypoint, the main command, or both, as the one
// becomes the other. Without a main command it has neither id nor record.
type execution struct {
	id       string
	primary  bool // started by Boot
	pid      int
	starting *starting // nil once the program runs
	tag      uint64
	members  map[int]uint64 // its family, where that is looked at: pid to start time
	sessions map[int]bool   // and the sessions that they were seen in; true: nobody was in it at the last look
	born     uint64         // the leader's start time, 0 while it was not looked at

	streams  [2]*stream
	record   int // descriptor
	keeper   int // descriptor: keeps the input open; -1 for none
	terminal int // descriptor: the master; -1 for none

	// Of the streams, set when they are drained.
	written       [2]uint64
	lost, dropped uint64

	started   time.Time
	timeoutAt time.Time // by the sandbox's clock, as killAt; zero: none
	grace     time.Duration

	cancelled, timedOut bool
	killAt              time.Time // zero: not cancelled, or KILL was sent
	killed              bool
	asked               map[int]struct{} // pids that TERM was sent to
	signalled           bool             // KILL was sent by a Signal
	oomKills            uint64           // the sandbox's counter when it started
	// oom: the kernel took the leader for want of memory. What is left of the command holds that memory, and is killed.
	oom bool

	exited, draining bool
	ended            time.Time
	status           syscall.WaitStatus
	usage            syscall.Rusage

	frame []byte // the encoded Result
}

func newExecution(id string) *execution {
	return &execution{id: id, record: -1, keeper: -1, terminal: -1, started: time.Now()}
}

// deadline is when something is due for the execution, zero when nothing is.
func (e *execution) deadline() time.Time {
	switch {
	case e.draining:
		return time.Time{}
	case e.starting != nil:
		return earlier(e.starting.by, e.commandDeadline())
	}
	return e.commandDeadline()
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// commandDeadline is when the command is ended.
func (e *execution) commandDeadline() time.Time {
	switch {
	case e.cancelled:
		return e.killAt
	case e.exited:
		return time.Time{}
	}
	return e.timeoutAt
}

// cancel sends TERM to the whole tree; KILL follows after grace. A second call can only shorten that.
func (e *execution) cancel(grace time.Duration, s *sandbox) {
	killAt := s.clock.now().Add(grace)
	switch {
	case e.exited && !e.cancelled || e.draining || e.killed:
		return
	case e.cancelled:
		if killAt.Before(e.killAt) {
			e.killAt = killAt
		}
		return
	}
	e.cancelled, e.killAt = true, killAt
	e.terminate(s.tree(e, process.All()))
}

// exitCode counts as a shell does.
func exitCode(ws syscall.WaitStatus) (code, sig int) {
	if ws.Signaled() {
		return 128 + int(ws.Signal()), int(ws.Signal())
	}
	return ws.ExitStatus(), 0
}

func (e *execution) result() *protocol.Result {
	r := &protocol.Result{
		ID: e.id, Started: e.started, Ended: e.ended,
		UserTime:   time.Duration(e.usage.Utime.Nano()),
		SystemTime: time.Duration(e.usage.Stime.Nano()),
		MaxRSS:     int64(e.usage.Maxrss) << 10,
		Cancelled:  e.cancelled, TimedOut: e.timedOut, OOM: e.oom,
		OutputLost: e.lost, OutputDropped: e.dropped, StdoutBytes: e.written[0], StderrBytes: e.written[1],
	}
	r.ExitCode, r.Signal = exitCode(e.status)
	return r
}

// failed is the result of what could not be started.
func (e *execution) failed(problem *failure) *protocol.Result {
	return &protocol.Result{
		ID: e.id, Started: e.started, Ended: time.Now(), ExitCode: problem.exitCode(),
		ErrorCode: problem.code, ErrorMessage: problem.message,
	}
}

// writeRecord is best effort: the result also goes to the daemon.
func writeRecord(fd int, r *protocol.Result) {
	for rest := protocol.EncodeRecord(r); len(rest) > 0; {
		n, err := syscall.Write(fd, rest)
		if err != nil && err != syscall.EINTR {
			kernel.Warn("record of exec " + r.ID + " not written: " + err.Error())
			break
		}
		rest = rest[max(n, 0):]
	}
	syscall.Close(fd)
}

// history keeps the results of the newest acknowledged commands, so that a repeated Exec of one is
// answered and not run again.
type history struct {
	frames map[string][]byte
	order  []string // a ring once it is full
	next   int
}

const maxHistory = 1024

func (h *history) add(id string, frame []byte) {
	if h.frames == nil {
		h.frames = map[string][]byte{}
	}
	if len(h.order) < maxHistory {
		h.order = append(h.order, id)
	} else {
		delete(h.frames, h.order[h.next])
		h.order[h.next] = id
		h.next = (h.next + 1) % maxHistory
	}
	h.frames[id] = frame
}
