package pool

import (
	"slices"
	"time"
)

// Quiet is how long nothing is made after one was taken, so that its first command has the processors.
const Quiet = 50 * time.Millisecond

// State is what Next goes by. Classes are in the order in which they are served.
type State struct {
	Classes []Supply
	// TakenAt is when one was last taken.
	TakenAt time.Time
	// Recent is how many are kept of the class that was created last, up to RecentUntil.
	Recent int
	// Makers is how many may be made at once.
	Makers int
	// Short: memory or disk is, so that nothing is kept.
	Short bool
}

// Supply is one class.
type Supply struct {
	Class Class
	// Size is how many the configuration asks for.
	Size int
	// RecentUntil is when the class stops to count as created last; zero for one that is not.
	RecentUntil time.Time
	// Ready are the places to take, oldest first.
	Ready  []string
	Making int
	// RetryAt is when the next try is due after one that failed. Unfit: there is none.
	RetryAt time.Time
	Unfit   bool
}

// Wanted is how many of the class are to be ready.
func (s State) Wanted(of Supply, now time.Time) int {
	switch {
	case s.Short || of.Unfit:
		return 0
	case now.Before(of.RecentUntil):
		return max(of.Size, s.Recent)
	}
	return of.Size
}

// Plan is what Next asks for: of each class in Make one more, and none of the places in Remove. At is when to ask again although
// nothing has changed, zero for never.
type Plan struct {
	Make   []Class
	Remove []string
	At     time.Time
}

// Next says what to do now.
func Next(s State, now time.Time) (p Plan) {
	wake := func(at time.Time) {
		if p.At.IsZero() || at.Before(p.At) {
			p.At = at
		}
	}
	free := s.Makers
	for _, c := range s.Classes {
		free -= c.Making
	}
	quiet := s.TakenAt.Add(Quiet)
	for _, c := range s.Classes {
		wanted := s.Wanted(c, now)
		if now.Before(c.RecentUntil) {
			wake(c.RecentUntil)
		}
		if surplus := len(c.Ready) - wanted; surplus > 0 {
			p.Remove = append(p.Remove, c.Ready[:surplus]...)
		}
		missing := wanted - len(c.Ready) - c.Making
		switch {
		case missing <= 0:
		case now.Before(quiet):
			wake(quiet)
		case now.Before(c.RetryAt):
			wake(c.RetryAt)
		default:
			n := min(missing, max(free, 0))
			free -= n
			p.Make = append(p.Make, slices.Repeat([]Class{c.Class}, n)...)
		}
	}
	return p
}
