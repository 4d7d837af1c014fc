package pid1

import "time"

// clock is the time that deadlines go by: the machine's, less the time that it stood still.
type clock struct {
	stood time.Duration // in the freezes that are over
	since time.Time     // by the machine's clock, zero while it runs
}

func (c *clock) frozen() bool { return !c.since.IsZero() }

func (c *clock) now() time.Time {
	if c.frozen() {
		return c.since.Add(-c.stood)
	}
	return time.Now().Add(-c.stood)
}

func (c *clock) freeze() {
	if !c.frozen() {
		c.since = time.Now()
	}
}

func (c *clock) thaw() {
	if c.frozen() {
		c.stood += time.Since(c.since)
		c.since = time.Time{}
	}
}
