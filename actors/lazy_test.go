package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

var lazySpec = &agboxv1.CreateSpec{Image: "image", Lazy: true}

func (w *world) calls(prefix string) (n int) {
	for _, call := range w.runtime.Calls() {
		if strings.HasPrefix(call, prefix) {
			n++
		}
	}
	return n
}

// TestLazyIsMadeOnce: a hundred first uses at once, execs and others, make one sandbox, and each gets its answer.
func TestLazyIsMadeOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", lazySpec)
		if phase := w.phase("box-1"); phase != lifecycle.Dormant || w.calls("create") != 0 {
			t.Errorf("before its first use it is %v, calls %v", phase, w.runtime.Calls())
		}
		g := w.gate("create box-1")
		var uses sync.WaitGroup
		for i := range 100 {
			uses.Go(func() {
				if i%2 == 0 {
					if err := w.system.Use(t.Context(), "box-1"); err != nil {
						t.Error(err)
					}
					return
				}
				request := &agboxv1.CreateExecRequest{SandboxId: "box-1", ExecId: fmt.Sprintf("exec-%d", i), Command: []string{"true"}}
				if err := w.system.StartExec(t.Context(), request, ""); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		g.open <- nil
		uses.Wait()
		synctest.Wait()
		if n := w.calls("create"); n != 1 || w.phase("box-1") != lifecycle.Ready {
			t.Errorf("it was made %d times and is %v", n, w.phase("box-1"))
		}
		if log := w.log("box-1"); strings.Count(log, "EXEC_FINISHED") != 50 || !strings.HasPrefix(log, "ACCEPTED ACCEPTED PREPARING READY EXEC_STARTED") {
			t.Errorf("the log is %s", log)
		}
	})
}

// TestLazyFails: all that waited hear why, and the next use tries again.
func TestLazyFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", lazySpec)
		g := w.gate("create box-1")
		var uses sync.WaitGroup
		for range 10 {
			uses.Go(func() {
				refusal, ok := errors.AsType[*lifecycle.Refusal](w.system.Use(t.Context(), "box-1"))
				if !ok || !strings.Contains(refusal.Message, "no image") {
					t.Errorf("a use is answered with %v", refusal)
				}
			})
		}
		synctest.Wait()
		g.open <- errors.New("no image")
		uses.Wait()
		w.runtime.Before = func(context.Context, string) error { return errors.New("still no image") }
		if err := w.system.Use(t.Context(), "box-1"); !errors.Is(err, lifecycle.ErrNotReady) {
			t.Errorf("a use alone is answered with %v", err)
		}
		w.runtime.Before = nil
		w.exec("box-1", "exec-1")
		w.expect("box-1", "ACCEPTED ACCEPTED PREPARING DORMANT ACCEPTED PREPARING DORMANT ACCEPTED PREPARING READY EXEC_STARTED EXEC_FINISHED")
	})
}

// TestLazyOverRestart: a making that the daemon's end cut off is carried on with; one that was never begun is not.
func TestLazyOverRestart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", lazySpec)
		w.create("box-2", lazySpec)
		w.restart()
		if w.phase("box-1") != lifecycle.Dormant {
			t.Errorf("after a restart it is %v", w.phase("box-1"))
		}
		w.gate("create box-1")
		w.request("box-1", lifecycle.Resume{})
		w.runtime.Before = nil
		w.restart()
		w.exec("box-1", "exec-1")
		w.request("box-2", lifecycle.Delete{})
		if w.phase("box-1") != lifecycle.Ready || w.phase("box-2") != lifecycle.Deleted || w.calls("create box-2") != 0 {
			t.Errorf("they are %v and %v; calls %v", w.phase("box-1"), w.phase("box-2"), w.runtime.Calls())
		}
	})
}

// TestLazyIsDeletedWhileMade: who waited for it hears that it is gone.
func TestLazyIsDeletedWhileMade(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", lazySpec)
		w.gate("create box-1")
		ended := make(chan error, 1)
		go func() {
			ended <- w.system.StartExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: "box-1", ExecId: "exec-1", Command: []string{"x"}}, "")
		}()
		synctest.Wait()
		w.request("box-1", lifecycle.Delete{})
		if err := <-ended; !errors.Is(err, lifecycle.ErrNotReady) {
			t.Errorf("the exec is answered with %v", err)
		}
	})
}

func leaseSpec(onEnd string) *agboxv1.CreateSpec {
	return &agboxv1.CreateSpec{Image: "image", Lease: &agboxv1.LeaseSpec{Grace: durationpb.New(time.Minute), OnEnd: onEnd}}
}

// TestLease: the sandbox lives as long as somebody holds it, and a grace longer.
func TestLease(t *testing.T) {
	for onEnd, end := range map[string]lifecycle.Phase{"": lifecycle.Deleted, "stop": lifecycle.Stopped} {
		inWorld(t, func(t *testing.T, w *world) {
			w.create("never", leaseSpec(onEnd))
			w.create("held", leaseSpec(onEnd))
			var releases []func()
			for range 2 {
				release, err := w.system.Hold(t.Context(), "held")
				if err != nil {
					t.Fatal(err)
				}
				releases = append(releases, release)
			}
			time.Sleep(61 * time.Second)
			synctest.Wait()
			if never, held := w.phase("never"), w.phase("held"); never != end || held != lifecycle.Ready {
				t.Errorf("after the grace the one that nobody holds is %v, the other %v", never, held)
			}
			releases[0]()
			time.Sleep(time.Hour)
			releases[1]()
			time.Sleep(59 * time.Second)
			synctest.Wait()
			view, err := w.system.Sandbox("held")
			if err != nil || view.State.Phase != lifecycle.Ready || !view.LeaseEndsAt.Equal(time.Now().Add(time.Second)) {
				t.Errorf("within the grace it is %v, %v", view, err)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if phase := w.phase("held"); phase != end {
				t.Errorf("a grace after its last holder it is %v", phase)
			}
			if events, _ := w.db.Events("held", 3, 1); events[0].GetSandboxPhase().GetReason() != lifecycle.ReasonLeaseEnded {
				t.Errorf("its end is told as %v", events)
			}
		})
	}
}

// TestLeaseOverRestart: holders have a grace from the daemon's start on to come back.
func TestLeaseOverRestart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("back", leaseSpec(""))
		w.create("gone", leaseSpec(""))
		w.create("detached", leaseSpec(""))
		w.request("detached", lifecycle.Detach{})
		time.Sleep(50 * time.Second)
		w.restart()
		time.Sleep(50 * time.Second)
		release, err := w.system.Hold(t.Context(), "back")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if back, gone, detached := w.phase("back"), w.phase("gone"), w.phase("detached"); back != lifecycle.Ready || gone != lifecycle.Deleted || detached != lifecycle.Ready {
			t.Errorf("they are %v, %v and %v", back, gone, detached)
		}
		release()
		w.create("none", spec)
		for _, id := range []string{"gone", "detached", "none"} {
			if _, err := w.system.Hold(t.Context(), id); !errors.Is(err, actors.ErrNoLease) {
				t.Errorf("a lease of %s: %v", id, err)
			}
		}
	})
}

// TestLeaseStopsOncePerLife: a sandbox that is resumed after its lease ended has the grace to be held again.
func TestLeaseStopsOncePerLife(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", leaseSpec("stop"))
		time.Sleep(time.Hour)
		synctest.Wait()
		w.request("box-1", lifecycle.Resume{})
		time.Sleep(59 * time.Second)
		if phase := w.phase("box-1"); phase != lifecycle.Ready {
			t.Errorf("soon after a resume it is %v", phase)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if phase := w.phase("box-1"); phase != lifecycle.Stopped {
			t.Errorf("a grace after a resume it is %v", phase)
		}
	})
}

// TestRestartPolicy: a sandbox that dies starts again after its backoff, over a restart of the daemon too, until it has
// failed too often in a row.
func TestRestartPolicy(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		again := &agboxv1.CreateSpec{Image: "image", RestartPolicy: &agboxv1.RestartPolicy{
			Mode: "on-failure", MaxRestarts: 2, Backoff: durationpb.New(10 * time.Second)}}
		w.create("box-1", again)
		w.runtime.Die("box-1")
		synctest.Wait()
		time.Sleep(9 * time.Second)
		w.restart()
		if n := w.calls("resume"); n != 0 || w.phase("box-1") != lifecycle.Pending {
			t.Errorf("within the backoff it was resumed %d times and is %v", n, w.phase("box-1"))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if phase := w.phase("box-1"); phase != lifecycle.Ready {
			t.Errorf("after the backoff it is %v", phase)
		}
		w.runtime.Before = func(_ context.Context, call string) error {
			if call == "resume box-1" {
				return errors.New("no network")
			}
			return nil
		}
		w.runtime.Die("box-1")
		synctest.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.expect("box-1", "ACCEPTED PREPARING READY RESTARTING READY RESTARTING FAILED")
	})
}

// TestRestartIsStopped: a sandbox that waits to be restarted is stopped at once, and stays so.
func TestRestartIsStopped(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", &agboxv1.CreateSpec{Image: "image", RestartPolicy: &agboxv1.RestartPolicy{Mode: "on-failure", Backoff: durationpb.New(time.Hour)}})
		w.runtime.Die("box-1")
		synctest.Wait()
		w.request("box-1", lifecycle.Stop{})
		w.expect("box-1", "ACCEPTED PREPARING READY RESTARTING STOP_REQUESTED STOPPED")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if calls := w.runtime.Calls(); slices.Contains(calls, "resume box-1") {
			t.Errorf("a stopped sandbox was resumed: %v", calls)
		}
	})
}

// TestCommandThatEndsWellIsNotRestarted: on-failure is no loop for a command that has done its work.
func TestCommandThatEndsWellIsNotRestarted(t *testing.T) {
	for code, want := range map[int32]string{0: "FAILED", 3: "RESTARTING"} {
		inWorld(t, func(t *testing.T, w *world) {
			ended := runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FINISHED, ExitCode: code}
			ends := make(chan struct{})
			w.runtime.Run = func(ctx context.Context, r *agboxv1.CreateExecRequest) (runtime.ExecResult, error) {
				<-ends
				w.runtime.Record(r.ExecId, ended)
				return ended, nil
			}
			w.create("box-1", &agboxv1.CreateSpec{Image: "image", Command: []string{"x"}, RestartPolicy: &agboxv1.RestartPolicy{Mode: "on-failure", Backoff: durationpb.New(time.Hour)}})
			close(ends)
			synctest.Wait()
			w.expect("box-1", "ACCEPTED PREPARING READY COMMAND_ENDED "+want)
		})
	}
}
