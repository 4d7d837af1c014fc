package actors_test

import (
	"errors"
	"strings"
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

// TestResumeAfterItsTime: what would be stopped at once is refused, and goes on once it was given time.
func TestResumeAfterItsTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", &agboxv1.CreateSpec{Image: "image", MaxDuration: durationpb.New(time.Hour), OnExpiry: "stop"})
		pass(time.Hour)
		for _, command := range []lifecycle.Command{lifecycle.Resume{}, w.unchanged("box-1", lifecycle.Resume{})} {
			if _, err := w.system.Request(t.Context(), "box-1", command); !errors.Is(err, lifecycle.ErrInvalidState) || !strings.Contains(err.Error(), "extend") {
				t.Errorf("%T: %v", command, err)
			}
		}
		more := time.Now().Add(time.Hour)
		w.request("box-1", lifecycle.Extend{ExpiresAt: &more})
		w.request("box-1", lifecycle.Resume{})
		w.expect("box-1", "ACCEPTED PREPARING READY STOP_REQUESTED STOPPED EXTENDED ACCEPTED READY")
	})
}

// TestIdleDeadlineIsShown where there is one.
func TestIdleDeadlineIsShown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.config.IdleTTL = time.Minute
		w.runtime.Run = w.runtime.UntilCancelled
		w.restart()
		for id, command := range map[string][]string{"box-1": nil, "box-2": {"serve"}} {
			w.create(id, &agboxv1.CreateSpec{Image: "image", Command: command})
			view, err := w.system.Sandbox(id)
			if err != nil || view.IdleAt.IsZero() != (command != nil) {
				t.Errorf("%s is idle at %v, %v", id, view.IdleAt, err)
			}
		}
	})
}

// unchanged is the command for a sandbox that is still as it is now.
func (w *world) unchanged(id string, command lifecycle.Command) lifecycle.Command {
	w.t.Helper()
	view, err := w.system.Sandbox(id)
	if err != nil {
		w.t.Fatal(err)
	}
	return lifecycle.IfUnchanged{Phase: view.State.Phase, Since: view.State.ChangedAt.AsTime(), Then: command}
}
