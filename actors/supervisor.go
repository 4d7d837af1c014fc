package actors

import (
	"log/slog"
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

// restartDelay grows with the crashes of the last minute, so that a sandbox that crashes at once does not
// keep a core busy.
const restartDelay = 50 * time.Millisecond

// restartStrategy audits a crash and restarts the sandbox from its log. Other sandboxes do not notice.
type restartStrategy struct{ system *System }

func (r restartStrategy) HandleFailure(_ *actor.ActorSystem, v actor.Supervisor, child *actor.PID, stats *actor.RestartStatistics, reason, message any) {
	stats.Fail()
	crashes := stats.NumberOfFailures(time.Minute)
	attributes := []any{slog.String("actor", child.Id), slog.Int("crashes_last_minute", crashes), slog.Any("reason", reason)}
	if c, ok := reason.(*crash); ok {
		attributes = append(attributes, slog.String("stack", string(c.stack)))
	}
	r.system.log.Error("actor crashed and is restarted from its log", attributes...)
	r.system.after(restartDelay*time.Duration(crashes), func() { v.RestartChildren(child) })
}
