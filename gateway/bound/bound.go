// Package bound counts what is open at once, so that nobody takes what others need.
package bound

import "sync"

// Bound is so much at once in all, and for each owner. It is safe for concurrent use.
type Bound struct {
	all, each int

	mu   sync.Mutex
	open map[string]int
	sum  int
}

// New returns a bound that nothing counts for yet.
func New(all, each int) *Bound { return &Bound{all: all, each: each, open: map[string]int{}} }

// Take counts one more of the owner's until release is called, which may be more than once; false: there is no room.
func (b *Bound) Take(owner string) (release func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sum >= b.all || b.open[owner] >= b.each {
		return nil, false
	}
	b.sum++
	b.open[owner]++
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.sum--
		if b.open[owner]--; b.open[owner] == 0 {
			delete(b.open, owner)
		}
	}), true
}
