package lifecycle

import (
	"strconv"
	"time"
)

// Next returns what becomes of a sandbox in this state when nothing else happens: the command that it gives itself, and when. A
// time that is over means now, the zero time never. A time without a command is when the operation in progress begins.
func Next(s State, p Policy, present Presence, now time.Time) (next Command, at time.Time) {
	consider := func(when time.Time, command Command) {
		if !when.IsZero() && (at.IsZero() || when.Before(at)) {
			next, at = command, when
		}
	}
	if s.Operation == Restarting && !s.Begun(now) {
		consider(s.RestartAt.AsTime(), nil)
	}
	consider(p.IdleAt(s, present.Traffic), p.onIdle())
	if s.Phase == Stopped && p.CleanupTTL > 0 {
		consider(s.ChangedAt.AsTime().Add(p.CleanupTTL), Delete{Reason: ReasonCleanupTTL})
	}
	if s.Phase == Draining && s.Operation == NoOperation {
		consider(moment(s.DrainUntil), Stop{Reason: ReasonDrainDeadline})
	}
	end := func(when time.Time, how, reason string) {
		switch {
		case how != byStop:
			consider(when, Delete{Reason: reason})
		case s.Up() && s.Operation == NoOperation || s.Operation == Restarting:
			consider(when, Stop{Reason: reason})
		}
	}
	if p.Spec.GetOnExpiry() == byPause {
		consider(p.pauseAt(s), Pause{Reason: ReasonMaxDuration})
	} else {
		end(p.ExpiresAt(s), p.Spec.GetOnExpiry(), ReasonMaxDuration)
	}
	if s.Phase != None {
		end(p.LeaseEndsAt(s, present.Lease), p.Spec.GetLease().GetOnEnd(), ReasonLeaseEnded)
	}
	return next, at
}

func (p Policy) onIdle() Command {
	switch p.Spec.GetOnIdle() {
	case byPause:
		return Pause{Reason: ReasonIdleTTL}
	case byDelete:
		return Delete{Reason: ReasonIdleTTL}
	}
	return Stop{Reason: ReasonIdleTTL}
}

// Begun reports whether the runtime should be at the operation in progress: a restart waits until RestartAt.
func (s State) Begun(now time.Time) bool {
	return s.Operation != NoOperation && !(s.Operation == Restarting && now.Before(s.RestartAt.AsTime()))
}

// Life names the start of the sandbox that is in progress, or was the last one: a daemon that carries it on finds the same name.
func (s State) Life() string {
	begun := s.ChangedAt.AsTime().UnixNano()
	return strconv.FormatInt(max(begun, s.RestartAt.AsTime().UnixNano()), 10)
}

// Waits reports whether a command that uses the sandbox waits until the sandbox goes on: a lazy one is made first, one that was
// paused because it was idle goes on for an exec, and for traffic one whose spec says so, also from a stop.
func (p Policy) Waits(s State, c Command) bool {
	_, exec := c.(StartExec)
	use, uses := c.(Use)
	switch {
	case s.Phase == Dormant || s.Making():
		return exec || uses
	case use.Traffic && p.Spec.GetWake() == wakeOnTraffic:
		return s.Phase == Paused || s.Phase == Stopped || s.Phase == Pending || s.Operation != NoOperation && s.Up()
	}
	return exec && s.Reason == ReasonIdleTTL && (s.Phase == Paused || s.Operation == Pausing)
}

// Wake is the command by which a sandbox goes on for those who wait, nil where it goes on by itself or not at all.
func (s State) Wake() Command {
	switch {
	case s.Phase == Dormant:
		return Use{}
	case s.Phase == Stopped:
		return Resume{}
	case s.Phase == Paused && s.Operation == NoOperation:
		return Unpause{}
	}
	return nil
}

// Making reports whether a lazy sandbox is being made.
func (s State) Making() bool { return s.Lazy && s.Operation == Creating }
