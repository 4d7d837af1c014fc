package checker

import (
	"time"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

const (
	// interrupted is the error code of a create that a crash ended.
	interrupted = "INTERRUPTED"
	// crashLoop is that of a sandbox whose actor panicked too often.
	crashLoop = "ACTOR_CRASH_LOOP"
)

// judge compares what clients were told of a sandbox with its log. At rest everything that was accepted must
// have ended, too. The record is locked.
func (c *Checker) judge(s *sandbox, h *history) {
	if h.cut > 0 && (c.MaxEvents == 0 || uint64(len(h.events)) < c.MaxEvents) {
		c.report.add(LostEvent, s.id, "its log begins at %d and has %d events: no log was to be cut so far", h.cut+1, len(h.events))
	}
	if len(h.events) == 0 && c.purged(s) {
		return
	}
	for _, stream := range s.streams {
		c.judgeStream(stream, h)
	}
	c.judgeOperations(s, h)
	for id, exec := range s.execs {
		c.judgeExec(s, id, exec, h)
	}
	for _, event := range h.events {
		if event.EventType != agboxv1.EventType_SANDBOX_FAILED || s.killed || c.Faults {
			continue
		}
		code := event.GetSandboxPhase().GetErrorCode()
		if phase := event.GetSandboxPhase(); code != interrupted && !(c.Panics && code == crashLoop) {
			c.report.add(Unexplained, s.id, "event %d: %s: %s", event.Sequence, phase.GetErrorCode(), phase.GetErrorMessage())
		}
	}
}

func (c *Checker) judgeStream(stream *Stream, h *history) {
	for i, told := range stream.events {
		want := stream.from + uint64(i) + 1
		if told.Sequence > want {
			c.report.add(Gap, h.id, "a client that follows %d was told %d after %d", stream.from, told.Sequence, want-1)
			return
		} else if told.Sequence < want {
			c.report.add(Duplicate, h.id, "a client that follows %d was told %d after %d", stream.from, told.Sequence, want-1)
			return
		}
		if told.Sequence > h.newest() {
			c.report.add(LostEvent, h.id, "a client was told event %d, the log ends at %d", told.Sequence, h.newest())
			return
		}
		if logged := h.at(told.Sequence); logged != nil && !same(told, logged) {
			c.report.add(LostEvent, h.id, "a client was told %v, the log says %v", told, logged)
		}
	}
}

// purged reports whether a sandbox may be forgotten: it was DELETED for longer than the daemon keeps such logs. A client was
// told of that, which the log can no longer confirm.
func (c *Checker) purged(s *sandbox) bool {
	for _, stream := range s.streams {
		if n := len(stream.events); c.Retention > 0 && n > 0 {
			last := stream.events[n-1]
			if last.EventType == agboxv1.EventType_SANDBOX_DELETED && time.Since(last.OccurredAt.AsTime()) >= c.Retention {
				return true
			}
		}
	}
	return false
}

func same(told, logged *agboxv1.SandboxEvent) bool {
	told, logged = proto.CloneOf(told), proto.CloneOf(logged)
	told.Replay, logged.Replay = false, false
	return proto.Equal(told, logged)
}

func (c *Checker) judgeOperations(s *sandbox, h *history) {
	accepted := h.counts[agboxv1.EventType_SANDBOX_ACCEPTED]
	logged := map[Operation]int{
		Create: min(accepted, 1), Resume: max(accepted-1, 0),
		Stop:    h.counts[agboxv1.EventType_SANDBOX_STOP_REQUESTED],
		Pause:   h.counts[agboxv1.EventType_SANDBOX_PAUSE_REQUESTED],
		Unpause: h.counts[agboxv1.EventType_SANDBOX_UNPAUSE_REQUESTED],
		Drain:   h.counts[agboxv1.EventType_SANDBOX_DRAIN_REQUESTED],
		Delete:  h.counts[agboxv1.EventType_SANDBOX_DELETE_REQUESTED],
	}
	for op, count := range logged {
		told := s.accepted[op]
		if op == Delete {
			told = min(told, 1) // accepted again, and nothing more is done
		}
		if told > count && h.cut == 0 {
			c.report.add(LostOperation, s.id, "%s was accepted %d times, the log has %d", op, told, count)
		}
		asked := s.asked[op]
		if op == Stop {
			asked += s.asked[Drain] // which ends in one
		}
		if count > asked {
			c.report.add(BrokenLog, s.id, "%s was asked for %d times, the log has %d", op, asked, count)
		}
	}
	if h.atRest() && s.accepted[Delete] > 0 && h.state != deleted && h.state != failed {
		c.report.add(LostOperation, s.id, "its deletion was accepted and it is %s", h.state)
	}
}

func (c *Checker) judgeExec(s *sandbox, id string, exec *exec, h *history) {
	end := h.ends[id]
	if end == nil {
		if exec.accepted && !h.running[id] && h.cut == 0 {
			c.report.add(LostOperation, id, "the exec was accepted and the log of %s does not have it", s.id)
		}
		return
	}
	details := end.GetExec()
	endedFromOutside := s.asked[Stop] > 0 || s.asked[Drain] > 0 || s.asked[Delete] > 0
	switch end.EventType {
	case agboxv1.EventType_EXEC_FINISHED:
		if details.ExitCode != exec.want.ExitCode || details.Signal != 0 {
			c.report.add(WrongExitCode, id, "it was to exit with %d, the log says %d, signal %d", exec.want.ExitCode, details.ExitCode, details.Signal)
		}
		if details.StartedAt == nil || details.EndedAt == nil || details.EndedAt.AsTime().Before(details.StartedAt.AsTime()) {
			c.report.add(LostExitCode, id, "its times are not known: %v", details)
		}
	case agboxv1.EventType_EXEC_CANCELLED:
		if !exec.cancelAsked && !endedFromOutside {
			c.report.add(LostExitCode, id, "it was cancelled and nobody asked for that: %v", details)
		}
	case agboxv1.EventType_EXEC_FAILED:
		if !s.killed && !(c.Faults && h.counts[agboxv1.EventType_SANDBOX_FAILED] > 0) {
			c.report.add(LostExitCode, id, "%s: %s", details.ErrorCode, details.ErrorMessage)
		}
	}
	c.judgeFiles(s, id, exec, end)
}
