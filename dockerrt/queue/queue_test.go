package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/queue"
)

// work is one piece of work on a queue, and what became of it.
type work struct {
	cancel  context.CancelFunc
	end     chan struct{}
	stands  []int
	granted bool
	err     error
}

// ask has work join; it is done when its end is closed. The order in which turns begin is added to begun.
func ask(t *testing.T, q *queue.Queue, ctx context.Context, name string, begun *[]string) *work {
	w := &work{end: make(chan struct{})}
	ctx, w.cancel = context.WithCancel(ctx)
	t.Cleanup(w.cancel)
	go func() {
		give, err := q.Take(ctx, func(before int) { w.stands = append(w.stands, before) })
		if w.err = err; err != nil {
			return
		}
		w.granted = true
		*begun = append(*begun, name)
		<-w.end
		give()
		give() // does nothing more
	}()
	synctest.Wait()
	return w
}

func (w *work) done() {
	close(w.end)
	synctest.Wait()
}

func turn(class runtime.Class, owner string) context.Context {
	return runtime.WithTurn(context.Background(), runtime.Turn{Class: class, Owner: owner})
}

// TestOwnersTakeTurns: whoever asks for little does not wait for all of who asks for much.
func TestOwnersTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, begun := queue.New(1), []string{}
		var all []*work
		for i := range 4 {
			all = append(all, ask(t, q, turn(runtime.Person, "much"), fmt.Sprint("much", i), &begun))
		}
		all = append(all, ask(t, q, turn(runtime.Person, "little"), "little", &begun))
		for range all {
			i := slices.IndexFunc(all, func(w *work) bool { return w.granted })
			all[i].done()
			all[i].granted = false
		}
		if got := strings.Join(begun, " "); got != "much0 little much1 much2 much3" && got != "much0 much1 little much2 much3" {
			t.Errorf("turns began in the order %s", got)
		}
	})
}

// TestClasses: making ahead and cleaning up wait while there is a person's work, and come in any case after some time, one at
// a time.
func TestClasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, begun := queue.New(2), []string{}
		person := ask(t, q, turn(runtime.Person, "a"), "person", &begun)
		cleanup := ask(t, q, turn(runtime.Cleanup, ""), "cleanup", &begun)
		refill := ask(t, q, turn(runtime.Refill, ""), "refill", &begun)
		if cleanup.granted || refill.granted {
			t.Errorf("%v began beside a person's work", begun)
		}
		if got := q.Census(); got.Running[runtime.Person] != 1 || got.Waiting[runtime.Refill] != 1 || got.Waiting[runtime.Cleanup] != 1 || got.Slots != 2 {
			t.Errorf("the census is %+v", got)
		}
		person.done()
		if got := strings.Join(begun, " "); got != "person refill" {
			t.Errorf("after the last person's work: %s", got)
		}
		// Cleanup has become as due as a person's work, though persons never end.
		first := ask(t, q, turn(runtime.Person, "a"), "first", &begun)
		time.Sleep(time.Minute)
		second := ask(t, q, turn(runtime.Person, "a"), "second", &begun)
		third := ask(t, q, turn(runtime.Person, "a"), "third", &begun)
		refill.done()
		first.done()
		second.done()
		third.done()
		if !cleanup.granted {
			t.Errorf("cleanup never began: %v", begun)
		}
		cleanup.done()
	})
}

// TestStands: who waits is told at once how many come before, and again when these are half as many; who need not wait is told
// nothing.
func TestStands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, begun := queue.New(1), []string{}
		var all []*work
		for i := range 10 {
			all = append(all, ask(t, q, turn(runtime.Person, "a"), fmt.Sprint(i), &begun))
		}
		for _, w := range all {
			w.done()
		}
		if got := all[0].stands; len(got) > 0 {
			t.Errorf("the first was told %v", got)
		}
		if got := all[9].stands; !slices.Equal(got, []int{8, 4, 2, 1, 0}) {
			t.Errorf("the tenth was told %v", got)
		}
	})
}

// TestGivenUp: what is not waited for any more leaves the line, and holds no turn.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, begun := queue.New(1), []string{}
		first := ask(t, q, turn(runtime.Person, "a"), "first", &begun)
		second := ask(t, q, turn(runtime.Person, "a"), "second", &begun)
		third := ask(t, q, turn(runtime.Person, "a"), "third", &begun)
		second.cancel()
		synctest.Wait()
		if !errors.Is(second.err, context.Canceled) {
			t.Errorf("the one that was given up ended with %v", second.err)
		}
		first.done()
		if !third.granted {
			t.Errorf("the turn of one that was given up is lost: %v", begun)
		}
		third.done()
		if got := q.Census(); got.Running[runtime.Person]+got.Waiting[runtime.Person] != 0 {
			t.Errorf("the census is %+v", got)
		}
	})
}

// TestSecondTurn: work that has begun goes on before what has not.
func TestSecondTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, begun := queue.New(1), []string{}
		ctx := q.Join(turn(runtime.Person, "a"))
		made := ask(t, q, ctx, "make", &begun)
		var others []*work
		for i := range 3 {
			others = append(others, ask(t, q, turn(runtime.Person, "a"), fmt.Sprint("other", i), &begun))
		}
		start := ask(t, q, ctx, "start", &begun)
		made.done()
		if !start.granted {
			t.Errorf("turns began in the order %v", begun)
		}
		start.done()
		for _, w := range others {
			w.done()
		}
	})
}

// TestFull: the line has an end, and says so.
func TestFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(1)
		ctx, cancel := context.WithCancel(t.Context())
		for range 4<<10 + 1 {
			go q.Take(runtime.WithTurn(ctx, runtime.Turn{Class: runtime.Cleanup}), nil)
		}
		synctest.Wait()
		if _, err := q.Take(ctx, nil); !errors.Is(err, queue.ErrFull) {
			t.Errorf("one too many ended with %v", err)
		}
		cancel()
		synctest.Wait()
	})
}
