package actors_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// steppedClock is a wall clock that can be set.
type steppedClock struct{ offset atomic.Int64 }

func (c *steppedClock) now() time.Time             { return time.Now().Add(time.Duration(c.offset.Load())) }
func (c *steppedClock) step(forward time.Duration) { c.offset.Add(int64(forward)) }

// pass lets time go by and whatever it brings about happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestClockStepsBack: a deadline is as late as the clock says, and not lost.
func TestClockStepsBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var clock steppedClock
		w.config.IdleTTL, w.config.Now = 30*time.Minute, clock.now
		w.restart()
		w.create("box-1", spec)
		pass(10 * time.Minute)
		clock.step(-5 * time.Minute)
		pass(24 * time.Minute)
		if phase := w.phase("box-1"); phase != lifecycle.Ready {
			t.Errorf("after 29 minutes by the clock it is %v", phase)
		}
		pass(3 * time.Minute)
		if phase := w.phase("box-1"); phase != lifecycle.Stopped {
			t.Errorf("after 32 minutes by the clock it is %v", phase)
		}
	})
}

// TestClockStepsForward, as after a suspended host: what is due is done within a minute, a restart that waits included.
func TestClockStepsForward(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var clock steppedClock
		w.config.IdleTTL, w.config.Now = 30*time.Minute, clock.now
		w.restart()
		w.create("box-1", spec)
		w.create("box-2", &agboxv1.CreateSpec{Image: "image", RestartPolicy: &agboxv1.RestartPolicy{
			Mode: "on-failure", Backoff: durationpb.New(20 * time.Minute)}})
		pass(5 * time.Minute)
		w.runtime.Die("box-2")
		pass(time.Minute)
		clock.step(time.Hour)
		pass(2 * time.Minute)
		if phase := w.phase("box-1"); phase != lifecycle.Stopped {
			t.Errorf("an hour late it is %v", phase)
		}
		if phase := w.phase("box-2"); phase != lifecycle.Ready {
			t.Errorf("the one to be restarted is %v", phase)
		}
	})
}
