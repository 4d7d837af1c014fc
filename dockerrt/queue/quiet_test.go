package queue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agbox-dev/agbox/dockerrt/queue"
)

// It is quiet once for each time that the last turn was given back, and not while one is out, however long.
func TestWhenQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, heard := queue.New(2), 0
		stop := q.WhenQuiet(5*time.Second, func() { heard++ })
		after := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if heard != want {
				t.Fatalf("heard %d times and not %d", heard, want)
			}
		}
		take := func() (give func()) {
			t.Helper()
			give, err := q.Take(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return give
		}
		after(time.Hour, 0) // nothing was done yet
		first, second := take(), take()
		after(time.Hour, 0)
		first()
		after(time.Hour, 0)
		second()
		after(4*time.Second, 0)
		third := take()
		after(time.Hour, 0)
		waiting, cancel := context.WithCancel(t.Context())
		fourth := take()
		go func() {
			<-time.After(time.Minute)
			cancel()
		}()
		if _, err := q.Take(waiting, nil); err == nil {
			t.Fatal("a third turn of two")
		}
		fourth()
		after(time.Hour, 0)
		third()
		after(5*time.Second, 1)
		after(time.Hour, 1)
		take()()
		stop()
		stop() // as often as one likes
		after(time.Hour, 1)
		take()()
		after(time.Hour, 1)
	})
}
