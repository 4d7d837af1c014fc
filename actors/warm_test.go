package actors_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/pool"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// inWarmWorld is inWorld with so many ready of the spec {Image: "image"}, which a daemon that ends leaves as one does that dies.
func inWarmWorld(t *testing.T, size int, test func(t *testing.T, w *world)) {
	t.Helper()
	inWorld(t, func(t *testing.T, w *world) {
		w.end()
		w.config.Pool = pool.Config{Warm: []pool.Kind{{Spec: &agboxv1.CreateSpec{Image: "image"}, Size: size}}, RecentFor: 10 * time.Minute, Keep: true}
		w.start()
		w.warm(size)
		test(t, w)
	})
}

// warm waits until so many are ready.
func (w *world) warm(n int) {
	w.t.Helper()
	time.Sleep(time.Second) // of the bubble
	synctest.Wait()
	if vacant := w.runtime.VacantPlaces(); len(vacant) != n {
		w.t.Fatalf("%d are ready, want %d", len(vacant), n)
	}
}

func (w *world) pool() *agboxv1.PoolClass {
	classes, _ := w.system.Pool()
	if len(classes) == 0 {
		return &agboxv1.PoolClass{}
	}
	return classes[0]
}

const warmLog = "ACCEPTED PREPARING READY"

// TestWarmCreate: a create that fits takes a ready one and is READY in the transaction that accepts it; the runtime is asked for nothing
// more than to make the place its own. The next one is made, but not at once.
func TestWarmCreate(t *testing.T) {
	t.Parallel()
	inWarmWorld(t, 1, func(t *testing.T, w *world) {
		w.runtime.Conflicts = func() { t.Error("the engine was asked for names") }
		before := len(w.runtime.Calls())
		spec := &agboxv1.CreateSpec{Image: "image", Envs: map[string]string{"A": "1"}, User: "nobody", Labels: map[string]string{"a": "b"}}
		view, err := w.system.Create(t.Context(), "box-1", spec, "")
		if err != nil || view.State.Phase != lifecycle.Ready || view.State.Sequence != 3 {
			t.Fatalf("%v at %d, %v", view.State.Phase, view.State.GetSequence(), err)
		}
		if calls := w.runtime.Calls()[before:]; len(calls) != 1 || calls[0] != "occupy box-1" {
			t.Errorf("the runtime was asked for %v", calls)
		}
		w.expect("box-1", warmLog)
		if n := w.runtime.VacantPlaces(); len(n) != 0 {
			t.Errorf("%v are ready at once", n)
		}
		w.warm(1)
		if p := w.pool(); p.Hits != 1 || p.Misses != 0 || p.Ready != 1 || p.Size != 1 {
			t.Errorf("the pool is %v", p)
		}
		w.request("box-1", lifecycle.Delete{Reason: lifecycle.ReasonDeleteRequested})
		w.expect("box-1", warmLog+" DELETE_REQUESTED DELETED")
	})
}

// TestWarmThenMade: a sandbox with files to be copied, or a command, takes a ready one, and is READY when that is done.
func TestWarmThenMade(t *testing.T) {
	t.Parallel()
	inWarmWorld(t, 1, func(t *testing.T, w *world) {
		g := w.gate("create box-1")
		w.create("box-1", &agboxv1.CreateSpec{Image: "image", Command: []string{"serve"}})
		w.expect("box-1", "ACCEPTED PREPARING")
		if w.runtime.PlaceOf("box-1") == "" {
			t.Error("it took none")
		}
		g.open <- nil
		synctest.Wait()
		w.expect("box-1", warmLog)
	})
}

// TestWarmRace: of a hundred creates at once on ten ready ones ten take one each, and the others are made.
func TestWarmRace(t *testing.T) {
	t.Parallel()
	inWarmWorld(t, 10, func(t *testing.T, w *world) {
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() {
				if _, err := w.system.Create(t.Context(), fmt.Sprintf("box-%d", i), &agboxv1.CreateSpec{Image: "image"}, ""); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		synctest.Wait()
		places := map[string]string{}
		for i := range 100 {
			id := fmt.Sprintf("box-%d", i)
			w.expect(id, warmLog)
			place := w.runtime.PlaceOf(id)
			if other := places[place]; place != "" && other != "" {
				t.Errorf("%s and %s have %s", id, other, place)
			}
			places[place] = id
		}
		if len(places) != 11 { // and none
			t.Errorf("%d were handed out", len(places)-1)
		}
		w.warm(10)
	})
}

// TestWarmRefused: a create whose id is in use, or was, takes none.
func TestWarmRefused(t *testing.T) {
	t.Parallel()
	inWarmWorld(t, 1, func(t *testing.T, w *world) {
		w.create("box-1", &agboxv1.CreateSpec{Image: "image", Pool: pool.Never})
		if w.runtime.PlaceOf("box-1") != "" {
			t.Error("pool: never took one")
		}
		vacant := w.runtime.VacantPlaces()
		if _, err := w.system.Create(t.Context(), "box-1", &agboxv1.CreateSpec{Image: "image"}, ""); !errors.Is(err, actors.ErrSandboxIDTaken) {
			t.Errorf("the id was taken: %v", err)
		}
		w.config.EventRetentionTTL = time.Second
		w.restart()
		w.request("box-1", lifecycle.Delete{Reason: lifecycle.ReasonDeleteRequested})
		time.Sleep(2 * time.Minute)
		if _, err := w.system.Create(t.Context(), "box-1", &agboxv1.CreateSpec{Image: "image"}, ""); !errors.Is(err, actors.ErrSandboxIDTaken) {
			t.Errorf("the id of one whose history is gone was taken: %v", err)
		}
		if still := w.runtime.VacantPlaces(); !slices.Equal(vacant, still) || w.pool().Hits != 0 || w.pool().Ready != 1 {
			t.Errorf("%v were ready, now %v: %v", vacant, still, w.pool())
		}
		w.create("box-2", &agboxv1.CreateSpec{Image: "image"})
		if w.runtime.PlaceOf("box-2") != vacant[0] {
			t.Error("what was given back is not taken")
		}
	})
}

// TestWarmAfterDeath: whatever a daemon that dies had come to, the next one adopts what is ready, removes what is half made, and has
// sandboxes keep what they took.
func TestWarmAfterDeath(t *testing.T) {
	t.Parallel()
	inWarmWorld(t, 2, func(t *testing.T, w *world) {
		w.create("box-1", &agboxv1.CreateSpec{Image: "image"})
		w.warm(2)
		took, ready := w.runtime.PlaceOf("box-1"), w.runtime.VacantPlaces()
		w.runtime.HalfMake("warm.half", &agboxv1.CreateSpec{Image: "image"})
		w.restart()
		w.warm(2)
		if vacant := w.runtime.VacantPlaces(); slices.Contains(vacant, "warm.half") || slices.Contains(vacant, took) {
			t.Errorf("ready are %v", vacant)
		}
		for _, place := range w.runtime.VacantPlaces() {
			if !slices.Contains(ready, place) {
				t.Errorf("%s was made anew", place)
			}
		}
		w.create("box-2", &agboxv1.CreateSpec{Image: "image"})
		w.expect("box-2", warmLog)
		if !slices.Contains(ready, w.runtime.PlaceOf("box-2")) {
			t.Errorf("box-2 has %q, ready were %v", w.runtime.PlaceOf("box-2"), ready)
		}
	})
}

// TestWarmDrained: a daemon that ends in order leaves none, and none is of a kind that nobody wants any more.
func TestWarmDrained(t *testing.T) {
	t.Parallel()
	inWarmWorld(t, 3, func(t *testing.T, w *world) {
		kept := w.runtime.VacantPlaces()
		w.config.Pool.Keep = false
		w.restart()
		w.warm(3)
		if now := w.runtime.VacantPlaces(); !slices.Equal(kept, now) {
			t.Errorf("%v were kept, now %v are there", kept, now)
		}
		w.end()
		if left := w.runtime.VacantPlaces(); len(left) != 0 {
			t.Errorf("%v are left", left)
		}
		w.start()
		w.warm(3)
		w.config.Pool = pool.Config{Keep: true}
		w.restart()
		w.warm(0)
	})
}

// TestWarmRecent: one of the class that was created last is kept for a while.
func TestWarmRecent(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.end()
		w.config.Pool = pool.Config{Recent: 1, RecentFor: 10 * time.Minute}
		w.start()
		w.warm(0)
		w.create("box-1", &agboxv1.CreateSpec{Image: "image", Envs: map[string]string{"A": "1"}})
		w.warm(1)
		w.create("box-2", &agboxv1.CreateSpec{Image: "image", Envs: map[string]string{"A": "2"}})
		if w.runtime.PlaceOf("box-2") == "" {
			t.Error("the second of its class took none")
		}
		w.warm(1)
		w.create("box-3", &agboxv1.CreateSpec{Image: "other"})
		w.warm(1)
		if p := w.pool(); p.Image != "other" {
			t.Errorf("kept is one of %s", p.Image)
		}
		time.Sleep(11 * time.Minute)
		w.warm(0)
	})
}

// TestWarmLost: one that ends before it is taken is replaced, and one whose image's name means another image now.
func TestWarmLost(t *testing.T) {
	t.Parallel()
	inWarmWorld(t, 1, func(t *testing.T, w *world) {
		first := w.runtime.VacantPlaces()[0]
		w.runtime.DieAt(first)
		time.Sleep(time.Minute)
		w.warm(1)
		second := w.runtime.VacantPlaces()[0]
		if second == first {
			t.Error("what has ended is still ready")
		}
		w.runtime.Retag("image", "newer")
		w.create("box-1", &agboxv1.CreateSpec{Image: "image"})
		if w.runtime.PlaceOf("box-1") == second {
			t.Error("it took one of an older image")
		}
		time.Sleep(time.Minute)
		w.warm(1)
		if w.runtime.VacantPlaces()[0] == second {
			t.Error("one of an older image is still ready")
		}
		w.runtime.Retag("image", "") // as where the engine does not tell
		w.create("box-2", &agboxv1.CreateSpec{Image: "image"})
		if w.runtime.PlaceOf("box-2") != "" {
			t.Error("it took one though nobody knows what its image's name means")
		}
		_, misses := w.system.Pool()
		if why := fmt.Sprint(misses); !strings.Contains(why, "not known without asking the engine") {
			t.Errorf("the misses are %s", why)
		}
	})
}

// TestWarmShort: nothing is kept where memory or disk is short.
func TestWarmShort(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.end()
		var mu sync.Mutex
		short := ""
		w.config.Pool = pool.Config{Warm: []pool.Kind{{Spec: &agboxv1.CreateSpec{Image: "image"}, Size: 2}}, Short: func() string {
			mu.Lock()
			defer mu.Unlock()
			return short
		}}
		w.start()
		w.warm(2)
		mu.Lock()
		short = "the disk is full"
		mu.Unlock()
		time.Sleep(2 * time.Minute)
		w.warm(0)
		if p := w.pool(); p.Problem != "the disk is full" || p.Size != 0 {
			t.Errorf("the pool is %v", p)
		}
		mu.Lock()
		short = ""
		mu.Unlock()
		time.Sleep(2 * time.Minute)
		w.warm(2)
	})
}

// TestWarmFork: of a fork's image none is made ahead, nor of the spec that it is made from.
func TestWarmFork(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.end()
		w.config.Pool = pool.Config{Recent: 1, RecentFor: 10 * time.Minute}
		w.start()
		w.create("box-1", &agboxv1.CreateSpec{Image: "image"})
		w.warm(1)
		if _, err := w.fork("box-1", "fork"); err != nil {
			t.Fatal(err)
		}
		w.warm(1)
		if p := w.pool(); p.Image != "image" {
			t.Errorf("kept is one of %s", p.Image)
		}
	})
}
