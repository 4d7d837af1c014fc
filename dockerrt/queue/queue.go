// Package queue orders what is asked of an engine: an engine makes only so many containers in a second, and more at once only
// makes each of them slower. Work of persons comes first, owners in turn; making ahead and cleaning up come when no person's
// work is there, and after some time in any case.
package queue

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/engine"
)

// maxWaiting bounds the line: a quarter of an hour of what an engine does.
const maxWaiting = 4 << 10

// ErrFull: more waits than is done in a quarter of an hour.
var ErrFull = errors.New("queue: too much waits for the engine")

// Queue grants turns, of which a fixed number are out at a time. It is safe for concurrent use.
type Queue struct {
	mu   sync.Mutex
	line *line
	// quiet goes off some time after the last turn, unless one is out again; nil for nobody to hear it.
	quiet      *time.Timer
	quietAfter time.Duration
}

// New returns a queue that has so many turns out at once, at least one.
func New(slots int) *Queue { return &Queue{line: newLine(slots)} }

// WhenQuiet has f called, by a goroutine of its own, each time that no turn has been out for so long after one was, until stop. It is for
// once, before the first turn.
func (q *Queue) WhenQuiet(after time.Duration, f func()) (stop func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.quietAfter, q.quiet = after, time.AfterFunc(after, f)
	q.quiet.Stop()
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.quiet != nil { // it may be stopped again
			q.quiet.Stop()
			q.quiet = nil
		}
	}
}

// settle sets the timer for when it is quiet, or stops it.
func (q *Queue) settle() {
	if q.quiet == nil {
		return
	}
	q.quiet.Stop()
	for _, running := range q.line.running {
		if running > 0 {
			return
		}
	}
	q.quiet.Reset(q.quietAfter)
}

type placeKey struct{}

// Join gives one piece of work that needs several turns a place that it keeps: what has begun comes before what has not.
func (q *Queue) Join(ctx context.Context) context.Context {
	return context.WithValue(ctx, placeKey{}, &place{turn: runtime.TurnOf(ctx)})
}

// Take waits for a turn, which ends with give. moved, unless nil, is called meanwhile by the caller's own goroutine: at once
// with how many persons' turns come before this one where it has to wait, and again whenever these are half as many. It fails
// with ErrFull, or when ctx ends. The turns of one Join come one after the other.
func (q *Queue) Take(ctx context.Context, moved func(before int)) (give func(), err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	p := &place{turn: runtime.TurnOf(ctx), told: -1, granted: make(chan struct{}), moved: make(chan int, 1)}
	kept, _ := ctx.Value(placeKey{}).(*place)
	if kept != nil {
		p.turn, p.round, p.numbered = kept.turn, kept.round, kept.numbered
	}
	if err := q.join(p, kept); err != nil {
		return nil, err
	}
	for {
		select {
		case <-p.granted:
			var once sync.Once
			return func() { once.Do(func() { q.end(p) }) }, nil
		case before := <-p.moved:
			if moved != nil {
				moved(before)
			}
		case <-ctx.Done():
			q.giveUp(p)
			return nil, ctx.Err()
		}
	}
}

func (q *Queue) join(p, kept *place) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if waiting := q.line.waiting(); waiting >= maxWaiting {
		return engine.Coded("ENGINE_QUEUE_FULL", "%w: %d wait already: try again later, or ask for fewer at once", ErrFull, waiting)
	}
	q.line.join(p, time.Now())
	if kept != nil {
		kept.round, kept.numbered = p.round, p.numbered
	}
	q.grant()
	q.settle()
	return nil
}

func (q *Queue) end(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.line.end(p)
	q.grant()
	q.settle()
}

func (q *Queue) giveUp(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-p.granted:
		q.line.end(p)
	default:
		q.line.leave(p)
	}
	q.grant()
	q.settle()
}

// grant has all begin that may, and the others told where they stand.
func (q *Queue) grant() {
	for {
		p := q.line.next(time.Now())
		if p == nil {
			break
		}
		close(p.granted)
	}
	q.line.moved(func(p *place, before int) {
		select {
		case <-p.moved: // what it did not come to hear is over
		default:
		}
		p.moved <- before
	})
}

// Census returns what is under way, and what waits.
func (q *Queue) Census() runtime.Work {
	q.mu.Lock()
	defer q.mu.Unlock()
	work := runtime.Work{Slots: q.line.slots, Running: maps.Clone(q.line.running), Waiting: map[runtime.Class]int{}}
	for _, p := range q.line.due {
		work.Waiting[p.turn.Class]++
	}
	for class, idle := range q.line.idle {
		work.Waiting[class] += len(idle)
	}
	return work
}
