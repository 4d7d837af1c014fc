package actors

import (
	"fmt"
	"log/slog"
	"path"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// supervisor is /sandboxes: it owns the sandbox actors and restarts those that crash. It never blocks.
type supervisor struct {
	system   *System
	retiring map[string]chan struct{}
}

type (
	// adopt spawns the actor of e and closes done.
	adopt struct {
		entry *entry
		done  chan struct{}
	}
	// retire ends the actor of e and closes done when its name is free again.
	retire struct {
		entry *entry
		done  chan struct{}
	}
)

func (v *supervisor) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *adopt:
		v.adopt(c, m)
	case *retire:
		v.retiring[m.entry.pid.Id] = m.done
		c.Stop(m.entry.pid)
	case *actor.Terminated:
		if done := v.retiring[m.Who.Id]; done != nil {
			delete(v.retiring, m.Who.Id)
			close(done)
		}
	}
}

func (v *supervisor) adopt(c actor.Context, m *adopt) {
	defer close(m.done)
	props := actor.PropsFromProducer(
		func() actor.Actor { return &sandbox{system: v.system, entry: m.entry} },
		actor.WithReceiverMiddleware(answerCrashes),
	)
	pid, err := c.SpawnNamed(props, m.entry.id)
	if err != nil {
		v.system.log.Error("sandbox actor name is taken", slog.String("sandbox_id", m.entry.id), slog.Any("error", err))
	}
	m.entry.pid = pid
}

const (
	// crashLimit crashes in a minute are borne; one more and the sandbox is given up.
	crashLimit = 5
	// restartDelay is multiplied by the crashes of the last minute, up to maxRestartDelay.
	restartDelay    = 50 * time.Millisecond
	maxRestartDelay = 5 * time.Second
)

// restartStrategy audits a crash and restarts the sandbox from its log. Other sandboxes do not notice.
type restartStrategy struct{ system *System }

func (r restartStrategy) HandleFailure(_ *actor.ActorSystem, v actor.Supervisor, child *actor.PID, stats *actor.RestartStatistics, reason, message any) {
	stats.Fail()
	crashes := stats.NumberOfFailures(time.Minute)
	id := path.Base(child.Id)
	attributes := []any{slog.String("sandbox_id", id), slog.Int("crashes_last_minute", crashes), slog.Any("reason", reason)}
	if c, ok := reason.(*crash); ok {
		attributes = append(attributes, slog.String("stack", string(c.stack)))
	}
	if e, found := r.system.registry.get(id); found {
		if state := e.state.Load(); state != nil {
			attributes = append(attributes, slog.Uint64("last_sequence", state.Sequence))
		}
		if crashes > crashLimit && e.quarantine.Load() == nil {
			why := fmt.Sprintf("the sandbox's actor crashed %d times within a minute, at last with: %v; "+
				"the daemon's log has the stacks. It can be inspected and deleted", crashes, reason)
			e.quarantine.Store(&why)
		}
	}
	r.system.log.Error("audit: actor crashed and is restarted from its log", attributes...)
	delay := min(restartDelay*time.Duration(crashes), maxRestartDelay)
	r.system.after(delay, func() { v.RestartChildren(child) })
}
