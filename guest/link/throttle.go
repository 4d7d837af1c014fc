package link

import "time"

// Anybody in the sandbox may connect, and be turned away. That costs the daemon some 50 µs each time, so that after a burst
// they are taken in at a rate that init, who tries 20 times a second, does not notice.
const (
	acceptBurst = 64
	acceptRate  = 500 // a second
)

// throttle spaces out what comes too often. The zero value is full of patience.
type throttle struct{ next time.Time }

// wait returns how long to wait before the next one, which comes now.
func (t *throttle) wait(now time.Time) time.Duration {
	const step = time.Second / acceptRate
	if full := now.Add(-acceptBurst * step); t.next.Before(full) {
		t.next = full
	}
	t.next = t.next.Add(step)
	return max(0, t.next.Sub(now))
}
