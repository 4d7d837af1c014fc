package actors_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// TestDeathInAGap: what ended while no daemon ran, or while its events were lost, is found by a look at each sandbox that
// should run, frozen or not. The engine's lists are no such look: they are behind.
func TestDeathInAGap(t *testing.T) {
	for name, gap := range map[string]func(*world){"start": (*world).start, "events": func(w *world) { w.runtime.Miss() }} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				for _, id := range []string{"ready", "paused", "draining", "alive"} {
					w.runtime.Run = w.runtime.UntilCancelled
					w.create(id, spec)
					w.exec(id, "exec-"+id)
				}
				w.request("paused", lifecycle.Pause{})
				w.request("draining", lifecycle.Drain{})
				if name == "start" {
					w.end()
				}
				for _, id := range []string{"ready", "paused", "draining"} {
					w.runtime.Kill(id)
				}
				gap(w)
				synctest.Wait()
				for _, id := range []string{"ready", "paused", "draining"} {
					if phase := w.phase(id); phase != lifecycle.Failed {
						t.Errorf("%s is %v", id, phase)
					}
				}
				if phase := w.phase("alive"); phase != lifecycle.Ready {
					t.Errorf("what lives is %v", phase)
				}
			})
		})
	}
}

// TestNoDeathIsMissed: whatever is under way when a container dies, however its end is told, whatever fails then and however
// often the daemon or the sandbox's actor starts anew: no sandbox goes on without its container.
func TestNoDeathIsMissed(t *testing.T) {
	for seed := range uint64(30) { // a thousand were tried
		inWorld(t, func(t *testing.T, w *world) { dieSomehow(t, w, seed) })
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

func dieSomehow(t *testing.T, w *world, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	w.config.IdleTTL = 3 * time.Second
	w.restart()
	var hostile, crash atomic.Bool
	hostile.Store(true)
	w.runtime.Recorded = func(string) {
		if crash.Swap(false) {
			panic("boom")
		}
	}
	var calls atomic.Uint64
	w.runtime.Before = func(ctx context.Context, call string) error {
		if !hostile.Load() || strings.HasPrefix(call, "create") {
			return nil
		}
		dice := rand.New(rand.NewPCG(seed, 2+calls.Add(1)))
		select {
		case <-time.After([]time.Duration{0, 0, time.Second, 20 * time.Second}[dice.IntN(4)]):
		case <-ctx.Done():
			return ctx.Err()
		}
		if dice.IntN(4) == 0 {
			return errors.New("chaos")
		}
		return nil
	}
	w.create("box-1", &agboxv1.CreateSpec{Image: "image", OnIdle: "pause"})
	dies, seen := random.IntN(6), random.IntN(2) == 0
	var steps []string
	for i := range 8 {
		if i == dies {
			steps = append(steps, fmt.Sprintf("dies, seen: %v", seen))
			w.runtime.Kill("box-1")
			if seen {
				w.runtime.Die("box-1")
			}
		}
		step := []string{"pause", "unpause", "exec", "idle", "restart", "moment", "gap", "crash"}[random.IntN(8)]
		steps = append(steps, step)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		switch step {
		case "pause":
			_, _ = w.system.Request(ctx, "box-1", lifecycle.Pause{})
		case "unpause":
			_, _ = w.system.Request(ctx, "box-1", lifecycle.Unpause{})
		case "crash":
			crash.Store(true)
			fallthrough
		case "exec":
			request := &agboxv1.CreateExecRequest{SandboxId: "box-1", ExecId: fmt.Sprintf("exec-%d", i), Command: []string{"true"}}
			_ = w.system.StartExec(ctx, request, "")
		case "idle":
			pass(5 * time.Second)
		case "restart":
			w.restart()
		case "moment":
			pass(time.Duration(random.IntN(1000)) * time.Millisecond)
		case "gap":
			w.runtime.Miss()
		}
		cancel()
	}
	hostile.Store(false)
	if !seen {
		w.runtime.Miss()
	}
	pass(2 * time.Minute)
	if view, err := w.system.Sandbox("box-1"); err != nil || view.State.Up() {
		t.Errorf("it is %v, %v after %v\n%s", view.State.Phase, err, steps, w.log("box-1"))
	}
}
