package actors

import "time"

// maxSleep bounds every sleep until a time of the day. Timers count the time that the machine was awake and know nothing of
// a clock that is set: a deadline is late by this much at most when the clock is set forward, or the host was suspended.
const maxSleep = time.Minute

// sleep is how long to sleep before looking at the clock again whether it is at.
func (s *System) sleep(at time.Time) time.Duration {
	return min(max(at.Sub(s.now()), time.Nanosecond), maxSleep)
}
