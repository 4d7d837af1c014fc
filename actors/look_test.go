package actors_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agbox-dev/agbox/actors/lifecycle"
)

var errLook = errors.New("too many open files")

// failing lets the calls it names fail until it is mended.
type failing struct {
	call   string
	mended atomic.Bool
}

func (f *failing) before(_ context.Context, call string) error {
	if call == f.call && !f.mended.Load() {
		return errLook
	}
	return nil
}

// TestDeathIsSeenLate: a container's end is found out about even if the first looks at it fail.
func TestDeathIsSeenLate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		look := &failing{call: "observe box-1"}
		w.runtime.Before = look.before
		w.runtime.Die("box-1")
		pass(time.Minute)
		if phase := w.phase("box-1"); phase != lifecycle.Ready {
			t.Errorf("unseen it is %v", phase)
		}
		look.mended.Store(true)
		pass(5 * time.Second)
		w.expect("box-1", "ACCEPTED PREPARING READY FAILED")
	})
}

// TestDeathBeforeStart: the same for what ended while no daemon ran.
func TestDeathBeforeStart(t *testing.T) {
	for _, call := range []string{"inventory", "observe box-1"} {
		t.Run(call, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.create("box-1", spec)
				w.end()
				w.runtime.Kill("box-1")
				look := &failing{call: call}
				w.runtime.Before = look.before
				w.start()
				pass(time.Minute)
				look.mended.Store(true)
				pass(5 * time.Second)
				w.expect("box-1", "ACCEPTED PREPARING READY FAILED")
			})
		})
	}
}

// TestDeathDuringPause: a pause that is asked for while the containers are looked at hides no death, whether it comes
// about, as where a service has died, or fails.
func TestDeathDuringPause(t *testing.T) {
	for pause, log := range map[error]string{
		nil:                           "PAUSED FAILED",
		errors.New("it does not run"): "UNPAUSED FAILED",
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.create("box-1", spec)
			var seen atomic.Bool
			w.runtime.Before = func(ctx context.Context, call string) error {
				switch {
				case call == "observe box-1" && !seen.Swap(true):
					<-ctx.Done()
					return ctx.Err()
				case call == "pause box-1":
					return pause
				}
				return nil
			}
			w.runtime.Die("box-1")
			synctest.Wait()
			w.request("box-1", lifecycle.Pause{})
			w.expect("box-1", "ACCEPTED PREPARING READY PAUSE_REQUESTED "+log)
		})
	}
}
