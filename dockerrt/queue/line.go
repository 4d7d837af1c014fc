package queue

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/agbox-dev/agbox/actors/runtime"
)

// patience is how long work of a class lets persons go before it; after that it is one owner among them.
var patience = map[runtime.Class]time.Duration{runtime.Refill: 5 * time.Second, runtime.Cleanup: 15 * time.Second}

// line decides who is next. It knows no clock and no goroutine.
//
// Owners share as in start-time fair queueing: the n-th piece of work that one has waiting carries the number of the round in
// which it may begin, and the lowest number is next. Who comes later begins in the round of now and waits for nobody's rest.
type line struct {
	slots, background int

	round  uint64            // that of the work which began last
	rounds map[string]uint64 // the next one of each owner that is ahead of round
	due    []*place          // persons, and what has waited long enough, by round and arrival
	idle   map[runtime.Class][]*place
	// running counts what is under way.
	running map[runtime.Class]int
	arrived uint64
}

// place is a piece of work in the line.
type place struct {
	turn    runtime.Turn
	since   time.Time
	round   uint64
	arrival uint64
	// numbered: round was given, in an earlier wait of the same work.
	numbered bool
	// told is how many were before it when that was told last.
	told int
	// granted is closed when its turn has come, moved holds how many are before it where that is to be told.
	granted chan struct{}
	moved   chan int
}

func newLine(slots int) *line {
	return &line{
		slots: max(slots, 1), background: max(slots/2, 1), rounds: map[string]uint64{},
		idle: map[runtime.Class][]*place{}, running: map[runtime.Class]int{},
	}
}

// join puts the work in line.
func (l *line) join(p *place, now time.Time) {
	p.since = now
	l.arrived++
	p.arrival = l.arrived
	if p.turn.Class == runtime.Person {
		l.number(p)
		return
	}
	l.idle[p.turn.Class] = append(l.idle[p.turn.Class], p)
}

// number gives the work its round, and its place among what is due.
func (l *line) number(p *place) {
	if !p.numbered {
		owner := p.turn.Class.String() + "/" + p.turn.Owner
		p.round, p.numbered = max(l.round, l.rounds[owner]), true
		l.rounds[owner] = p.round + 1
	}
	at, _ := slices.BinarySearchFunc(l.due, p, func(a, b *place) int {
		return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.arrival, b.arrival))
	})
	l.due = slices.Insert(l.due, at, p)
}

// next takes the work out of the line that begins now, nil for none.
func (l *line) next(now time.Time) *place {
	for class, waiting := range l.idle {
		for len(waiting) > 0 && now.Sub(waiting[0].since) >= patience[class] {
			l.number(waiting[0])
			waiting = waiting[1:]
		}
		l.idle[class] = waiting
	}
	lower := l.running[runtime.Refill] + l.running[runtime.Cleanup]
	if lower+l.running[runtime.Person] >= l.slots {
		return nil
	}
	for i, p := range l.due {
		if p.turn.Class == runtime.Person || lower < l.background {
			l.due = slices.Delete(l.due, i, i+1)
			l.advance(p.round)
			return l.begin(p)
		}
	}
	if l.running[runtime.Person] > 0 || lower >= l.background {
		return nil
	}
	for _, class := range []runtime.Class{runtime.Refill, runtime.Cleanup} {
		if waiting := l.idle[class]; len(waiting) > 0 {
			l.idle[class] = waiting[1:]
			return l.begin(waiting[0])
		}
	}
	return nil
}

func (l *line) begin(p *place) *place {
	l.running[p.turn.Class]++
	return p
}

// advance forgets who is not ahead of the round: they begin in it in any case.
func (l *line) advance(round uint64) {
	if round <= l.round {
		return
	}
	l.round = round
	maps.DeleteFunc(l.rounds, func(_ string, next uint64) bool { return next <= round })
}

// end tells that the work is done.
func (l *line) end(p *place) { l.running[p.turn.Class]-- }

// leave takes work out of the line that nobody waits for any more.
func (l *line) leave(p *place) {
	same := func(other *place) bool { return other == p }
	l.due = slices.DeleteFunc(l.due, same)
	l.idle[p.turn.Class] = slices.DeleteFunc(l.idle[p.turn.Class], same)
}

// waiting counts what is in the line.
func (l *line) waiting() int {
	return len(l.due) + len(l.idle[runtime.Refill]) + len(l.idle[runtime.Cleanup])
}

// moved calls tell for persons that have half as many before them as they were told last, or were never told.
func (l *line) moved(tell func(p *place, before int)) {
	for before, p := range l.due {
		if p.turn.Class == runtime.Person && (p.told < 0 || before <= p.told/2 && before < p.told) {
			p.told = before
			tell(p, before)
		}
	}
}
