package pid1

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/agbox-dev/agbox/guest/account"
	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/process"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// sandbox is all that PID 1 knows. Everything here belongs to the goroutine of run.
type sandbox struct {
	options
	environ   []string
	canSwap   bool // init may switch users
	null      int
	terminals int // descriptor of their directory, -1 for none
	tags      process.Tagger
	sealed    bool // no process can take its tag off
	pump      *pump
	oom       process.OOMCounter
	clock     clock // of all deadlines

	questions []question      // for the lookup, in turn
	attempts  chan *attempt   // for the forkers
	unforked  []*execution    // that wait for a forker, in turn
	forkBy    time.Time       // by the sandbox's clock: until when these wait
	forking   []*execution    // whose pids are not known yet
	ready     chan *execution // perhaps its program runs

	inbox     chan received
	drained   chan *execution
	handovers chan int
	children  chan os.Signal
	signals   chan os.Signal

	daemon *session // nil until the first connection
	booted bool
	boot   protocol.BootStatus

	execs   map[string]*execution // running, or ended and not acknowledged
	running map[*execution]struct{}
	leaders map[int]*execution // by pid, until reaped
	past    history

	armed time.Time // by the sandbox's clock: when the timer goes off, zero: never
	rearm bool      // something is due before that, or not any more

	stopping  bool
	killAt    time.Time // while stopping: when KILL goes to all, then when init leaves regardless
	killed    bool
	childless bool
}

// afterKill is how long init waits for what does not die of KILL.
const afterKill = time.Second

func newSandbox(o options) *sandbox {
	s := &sandbox{
		options: o, environ: os.Environ(), canSwap: account.CanSwitchUser(), null: null(), terminals: openTerminals(), oom: process.OpenOOMCounter(),
		tags: process.NewTagger(), sealed: process.CanSeal(), attempts: make(chan *attempt), ready: make(chan *execution),
		inbox: make(chan received), drained: make(chan *execution), handovers: make(chan int),
		children: make(chan os.Signal, 1), signals: make(chan os.Signal, 16),
		execs: map[string]*execution{}, running: map[*execution]struct{}{}, leaders: map[int]*execution{},
	}
	signal.Notify(s.children, syscall.SIGCHLD)
	// Those that the Go runtime would die of are caught and, but for two, dropped. They are not
	// ignored: commands would inherit that.
	signal.Notify(s.signals, syscall.SIGTERM, syscall.SIGINT,
		syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGPIPE, syscall.SIGXFSZ)
	return s
}

func (s *sandbox) run() {
	var err error
	if s.pump, err = newPump(s.drained, s.ready); err != nil {
		kernel.Warn("cannot carry output: " + err.Error())
		os.Exit(1)
	}
	s.pump.headroom = s.options.headroom
	if len(s.entrypoint) > 0 {
		if listener, err := listenHandover(); err != nil {
			kernel.Warn("handover socket: " + err.Error())
		} else {
			go acceptHandovers(listener, s.handovers)
		}
	}
	go s.pump.run()
	go dial(s.socket, s.inbox)
	questions, answers := make(chan question), make(chan answer)
	home, _ := getenv(s.environ, "HOME")
	look := &lookup{s.options, s.environ, account.Rules{User: s.user, ImageUser: s.imageUser, Home: home, CanSwitch: s.canSwap}}
	go look.run(questions, answers)
	for range forkers {
		go fork(s.attempts, s.ready)
	}

	timer := time.NewTimer(0)
	for !s.stopping || len(s.running) > 0 || !s.childless {
		s.arm(timer)
		var ask chan<- question
		var next question
		if len(s.questions) > 0 {
			ask, next = questions, s.questions[0]
		}
		var give chan<- *attempt
		var first *attempt
		if len(s.unforked) > 0 {
			give, first = s.attempts, s.unforked[0].starting.attempt
		}
		select {
		case r := <-s.inbox:
			s.receive(r)
		case ask <- next:
			s.questions = s.questions[1:]
		case a := <-answers:
			s.launch(a)
		case give <- first:
			s.given()
		case e := <-s.ready:
			s.settleForks(false)
			s.settleStart(e)
		case e := <-s.drained:
			s.end(e, e.result())
		case fd := <-s.handovers:
			s.bootDone(protocol.BootStatus{State: protocol.BootHandedOver})
			syscall.Close(fd)
		case <-s.children:
			s.reap()
		case sig := <-s.signals:
			if sig == syscall.SIGTERM || sig == syscall.SIGINT {
				s.settleForks(true)
				s.stop(s.stopGrace)
			}
		case <-timer.C:
			s.settleForks(true)
			s.wentOff()
			if s.expire(s.clock.now()) {
				s.leave()
				return
			}
		}
	}
	s.leave()
}

// leave gives the last output and the last results their way out.
func (s *sandbox) leave() {
	limit := time.After(afterKill)
	for finished := s.pump.finish(); finished != nil; {
		select {
		case <-finished:
			finished = nil
		case <-s.ready: // the pump is not to wait for this goroutine
		case <-s.drained:
		case <-limit:
			finished = nil
		}
	}
	if s.daemon == nil {
		return
	}
	select {
	case <-s.daemon.Flush():
	case <-limit:
	}
}

// due has the timer go off at t, which is zero for never, at the latest. What was due and is no more may have it go off in vain.
func (s *sandbox) due(t time.Time) {
	s.rearm = s.rearm || !t.IsZero() && (s.armed.IsZero() || t.Before(s.armed))
}

// wentOff notes that the timer did.
func (s *sandbox) wentOff() { s.armed, s.rearm = time.Time{}, true }

// arm sets the timer to the next thing that is due.
func (s *sandbox) arm(timer *time.Timer) {
	if !s.rearm {
		return
	}
	s.rearm = false
	next := s.killAt
	if len(s.unforked) > 0 {
		next = earlier(next, s.forkBy)
	}
	for e := range s.running {
		if d := e.deadline(); !d.IsZero() && (next.IsZero() || d.Before(next)) {
			next = d
		}
	}
	s.armed = time.Time{}
	if next.IsZero() || s.clock.frozen() {
		timer.Stop()
		return
	}
	s.armed = next
	timer.Reset(next.Sub(s.clock.now()))
}

// expire does what is due; true when init has to leave although something still lives.
func (s *sandbox) expire(now time.Time) bool {
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	for len(s.unforked) > 0 && due(s.forkBy) { // all forkers are held up
		for range len(s.unforked) {
			s.copy()
		}
	}
	var kill bool
	for e := range s.running {
		if d := e.deadline(); !due(d) {
			continue
		}
		if e.starting != nil && due(e.starting.by) {
			s.giveUp(e)
			continue
		}
		if e.cancelled {
			e.killAt, e.killed, kill = time.Time{}, true, true
		} else {
			e.timedOut = true
			s.cancel(e, e.grace)
		}
	}
	if kill {
		s.settleCancelled()
	}
	if !due(s.killAt) {
		return false
	}
	if s.killed {
		return true
	}
	syscall.Kill(-1, syscall.SIGKILL)
	s.killed, s.killAt = true, now.Add(afterKill)
	return false
}

// stop begins the end of the sandbox; a further call can only shorten the grace.
func (s *sandbox) stop(grace time.Duration) {
	now := s.clock.now()
	if s.stopping {
		if at := now.Add(grace); !s.killed && at.Before(s.killAt) {
			s.killAt, s.rearm = at, true
		}
		return
	}
	s.stopping, s.killAt, s.rearm = true, now.Add(grace), true
	for e := range s.running {
		if e.starting != nil && e.pid == 0 {
			s.refuse(e, &failure{protocol.CodeStopping, "exec: the sandbox is stopping"})
		} else if !e.exited {
			e.cancelled, e.killAt = true, time.Time{}
		}
	}
	syscall.Kill(-1, syscall.SIGTERM)
	syscall.Kill(-1, syscall.SIGCONT)
	s.reap()
}

// reap collects all that have ended, commands as well as orphans.
func (s *sandbox) reap() {
	for {
		var ws syscall.WaitStatus
		var usage syscall.Rusage
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, &usage)
		if err == syscall.EINTR {
			continue
		}
		if pid <= 0 || err != nil {
			s.childless = err == syscall.ECHILD
			break
		}
		s.settleForks(false) // the kernel tells a pid before its process runs
		if e := s.leaders[pid]; e != nil {
			delete(s.leaders, pid)
			if _, waited := s.running[e]; !waited {
				continue // it was given up
			}
			e.exited, e.ended, e.status, e.usage = true, time.Now(), ws, usage
			s.settleStart(e)
			if _, started := s.running[e]; !started {
				continue
			}
			foreign := ws.Signal() == syscall.SIGKILL && !e.killed && !e.signalled && !s.killed
			e.oom = foreign && s.oom.Kills() > e.oomKills
			e.killed = e.killed || e.oom
			if !e.cancelled && !e.oom {
				s.drain(e)
			}
		}
	}
	s.settleCancelled()
}

func (s *sandbox) drain(e *execution) {
	e.draining = true
	s.pump.drain(e)
}

// settleCancelled goes on with commands whose whole tree is to end: those with nothing left alive are drained,
// those whose grace is over are killed, again and again, since a process may fork while it is
// looked for. Each death in a tree ends in a SIGCHLD to init, so this needs no timer.
func (s *sandbox) settleCancelled() {
	var all []process.Process
	for e := range s.running {
		if !e.cancelled && !e.oom || e.draining || e.pid == 0 || !e.exited && !e.killed {
			continue
		}
		if s.stopping {
			// All trees end together; KILL goes to all processes.
			if s.childless && e.exited {
				s.drain(e)
			}
			continue
		}
		if all == nil {
			all = process.All()
		}
		switch t := s.tree(e, all); {
		case !t.alive() && e.exited:
			s.drain(e)
		case e.killed:
			s.destroy(e, t)
			all = nil
		default:
			e.terminate(t)
		}
	}
}

// end makes r the result of e, on disk first.
func (s *sandbox) end(e *execution, r *protocol.Result) {
	delete(s.running, e)
	e.closeStdin()
	if e.terminal >= 0 {
		syscall.Close(e.terminal)
		e.terminal = -1
	}
	if e.id != "" {
		writeRecord(e.record, r)
		e.frame = slices.Clone(encode(r)) // kept for long, so without spare capacity
		e.streams = [2]*stream{}
		s.send(e.frame)
	}
	if e.primary {
		s.bootDone(protocol.BootStatus{State: protocol.BootExited, ExitCode: r.ExitCode, Signal: r.Signal})
	}
}

func (s *sandbox) bootDone(status protocol.BootStatus) {
	if !s.booted || s.boot.State != protocol.BootPending {
		return
	}
	s.boot = status
	s.send(encode(&protocol.Booted{Status: status}))
}

func (s *sandbox) send(frame []byte) {
	if s.daemon != nil {
		s.daemon.Add(protocol.Outgoing{Frame: frame})
	}
}

// encode drops what exceeds a frame. Only a Hello that lists some 20,000 commands could.
func encode(m protocol.Message) []byte {
	frame, err := protocol.Encode(m, 0)
	if err != nil {
		kernel.Warn("message dropped: " + err.Error())
	}
	return frame
}
