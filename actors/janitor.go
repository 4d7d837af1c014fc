package actors

import (
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// janitor is /janitor: it removes the history of sandboxes that were DELETED long enough ago, with their logs, and the logs of
// execs whose events were trimmed.
type janitor struct {
	system *System
	// next is when a history is due, nil while none is.
	next *alarm
}

type (
	// deleted tells that a sandbox was DELETED, trimmed that events of one were removed because there were too many.
	deleted struct{}
	trimmed struct{}
)

func (j *janitor) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		j.purge()
		j.arm(c.Self())
		j.clear(c.Self())
	case *trimmed:
		j.clear(c.Self())
	case *deleted:
		j.arm(c.Self())
	case *alarm:
		if m == j.next {
			j.next = nil
			j.purge()
			j.arm(c.Self())
		}
	}
}

// purge removes what is due. The logs go first: a crash in between leaves a history that is purged again.
func (j *janitor) purge() {
	if j.system.config.EventRetentionTTL <= 0 {
		return
	}
	due, err := j.system.db.DeletedBefore(j.system.now().Add(-j.system.config.EventRetentionTTL))
	if err != nil {
		j.system.log.Error("history that is due cannot be listed", slog.Any("error", err))
		return
	}
	for _, id := range due {
		if err := j.system.runtime.Forget(id); err != nil {
			j.system.log.Error("logs of a deleted sandbox cannot be removed", slog.String("sandbox_id", id), slog.Any("error", err))
			continue
		}
		if err := j.system.db.Purge(id); err != nil {
			j.system.log.Error("history of a deleted sandbox cannot be removed", slog.String("sandbox_id", id), slog.Any("error", err))
			continue
		}
		j.system.forget(id)
		j.system.log.Info("history removed", slog.String("sandbox_id", id), slog.String("reason", "event_retention_ttl"))
	}
}

// clearAtOnce is how many trimmed execs lose their files before the janitor looks at what else there is to do.
const clearAtOnce = 256

// clear removes the files of execs whose events are gone.
func (j *janitor) clear(self *actor.PID) {
	list, err := j.system.db.TrimmedExecs(clearAtOnce)
	for _, exec := range list {
		if err == nil {
			err = j.system.runtime.ForgetExec(exec.SandboxID, exec.ExecID)
		}
	}
	if err == nil && len(list) > 0 {
		err = j.system.db.ForgetTrimmed(list)
	}
	switch {
	case err != nil: // the next trim, or start, tries again
		j.system.log.Error("logs of execs whose events are gone cannot be removed", slog.Any("error", err))
	case len(list) == clearAtOnce:
		j.system.actors.Root.Send(self, &trimmed{})
	}
}

// retryPurge is how long a purge that failed waits for its next try.
const retryPurge = time.Minute

// arm has the janitor woken when the next history is due.
func (j *janitor) arm(self *actor.PID) {
	if j.system.config.EventRetentionTTL <= 0 || j.next != nil {
		return
	}
	oldest, found, err := j.system.db.OldestDeletion()
	if err != nil || !found {
		return
	}
	due := oldest.Add(j.system.config.EventRetentionTTL + time.Nanosecond)
	if now := j.system.now(); !due.After(now) {
		due = now.Add(retryPurge)
	}
	j.next = j.system.alarm(self, due)
}
