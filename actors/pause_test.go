package actors_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// TestPause: over a restart of the daemon, with an exec that goes on.
func TestPause(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.runtime.Run = w.runtime.UntilCancelled
		w.create("box-1", spec)
		w.exec("box-1", "exec-1")
		w.request("box-1", lifecycle.Pause{})
		w.restart()
		if phase := w.phase("box-1"); phase != lifecycle.Paused {
			t.Errorf("after a restart it is %v", phase)
		}
		w.request("box-1", lifecycle.Unpause{})
		if err := w.system.CancelExec(t.Context(), "exec-1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.request("box-1", lifecycle.Pause{})
		w.request("box-1", lifecycle.Stop{Force: true})
		w.expect("box-1", "ACCEPTED PREPARING READY EXEC_STARTED PAUSE_REQUESTED PAUSED UNPAUSE_REQUESTED UNPAUSED EXEC_CANCELLED "+
			"PAUSE_REQUESTED PAUSED STOP_REQUESTED STOPPED")
	})
}

// TestPauseFails: the sandbox goes on, and the event says why.
func TestPauseFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		w.runtime.Before = func(_ context.Context, call string) error {
			if call == "pause box-1" {
				return errors.New("no freezer")
			}
			return nil
		}
		w.request("box-1", lifecycle.Pause{})
		w.expect("box-1", "ACCEPTED PREPARING READY PAUSE_REQUESTED UNPAUSED")
		w.exec("box-1", "exec-1")
	})
}

// TestIdlePause: the sandbox is paused when idle, and any number of execs wake it once.
func TestIdlePause(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.config.IdleTTL = time.Minute
		w.restart()
		w.create("box-1", &agboxv1.CreateSpec{Image: "image", OnIdle: "pause"})
		time.Sleep(2 * time.Minute)
		w.expect("box-1", "ACCEPTED PREPARING READY PAUSE_REQUESTED PAUSED")
		slow := make(chan struct{})
		w.runtime.Before = func(_ context.Context, call string) error {
			if call == "unpause box-1" {
				<-slow
			}
			return nil
		}
		errs := make(chan error, 3)
		for _, id := range []string{"exec-1", "exec-2", "exec-3"} {
			go func() {
				errs <- w.system.StartExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: "box-1", ExecId: id, Command: []string{"true"}}, "")
			}()
		}
		synctest.Wait()
		close(slow)
		for range 3 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if n := len(slices.DeleteFunc(w.runtime.Calls(), func(call string) bool { return call != "unpause box-1" })); n != 1 {
			t.Errorf("it was unpaused %d times", n)
		}
		if phase := w.phase("box-1"); phase != lifecycle.Ready {
			t.Errorf("it is %v", phase)
		}
	})
}

// TestPausedByRequest: an exec does not wake what a person has paused.
func TestPausedByRequest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		w.request("box-1", lifecycle.Pause{Reason: lifecycle.ReasonPauseRequested})
		err := w.system.StartExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: "box-1", ExecId: "exec-1", Command: []string{"true"}}, "")
		if !errors.Is(err, lifecycle.ErrNotReady) {
			t.Errorf("an exec gets %v", err)
		}
	})
}

// TestDrain: the last exec's end, or the deadline, stops the sandbox.
func TestDrain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.runtime.Run = w.runtime.UntilCancelled
		for _, id := range []string{"box-1", "box-2"} {
			w.create(id, spec)
			w.exec(id, "exec-"+id)
		}
		w.request("box-1", lifecycle.Drain{})
		w.request("box-2", lifecycle.Drain{Until: time.Now().Add(time.Minute)})
		w.restart()
		if err := w.system.CancelExec(t.Context(), "exec-box-1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.expect("box-1", "ACCEPTED PREPARING READY EXEC_STARTED DRAIN_REQUESTED EXEC_CANCELLED STOP_REQUESTED STOPPED")
		time.Sleep(2 * time.Minute)
		w.expect("box-2", "ACCEPTED PREPARING READY EXEC_STARTED DRAIN_REQUESTED STOP_REQUESTED EXEC_CANCELLED STOPPED")
	})
}

// TestForcedStop replaces a stop that hangs.
func TestForcedStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		w.runtime.Before = func(ctx context.Context, call string) error {
			if call == "stop box-1" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		w.request("box-1", lifecycle.Stop{})
		w.request("box-1", lifecycle.Stop{Force: true})
		w.expect("box-1", "ACCEPTED PREPARING READY STOP_REQUESTED STOP_REQUESTED STOPPED")
	})
}

// TestDeadlines: a sandbox's time ends as its spec says, over restarts, unless it is extended.
func TestDeadlines(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("deleted", &agboxv1.CreateSpec{Image: "image", MaxDuration: durationpb.New(time.Hour)})
		w.create("stopped", &agboxv1.CreateSpec{Image: "image", MaxDuration: durationpb.New(time.Hour), OnExpiry: "stop"})
		w.create("extended", &agboxv1.CreateSpec{Image: "image", MaxDuration: durationpb.New(time.Hour)})
		time.Sleep(30 * time.Minute)
		later := time.Now().Add(time.Hour)
		w.request("extended", lifecycle.Extend{ExpiresAt: &later})
		w.restart()
		time.Sleep(31 * time.Minute)
		w.expect("deleted", "ACCEPTED PREPARING READY DELETE_REQUESTED DELETED")
		w.expect("stopped", "ACCEPTED PREPARING READY STOP_REQUESTED STOPPED")
		w.expect("extended", "ACCEPTED PREPARING READY EXTENDED")
		time.Sleep(time.Hour)
		w.expect("extended", "ACCEPTED PREPARING READY EXTENDED DELETE_REQUESTED DELETED")
	})
}

// TestCheckpointKeepsDeadlines: what an Extend set outlives the event that tells of it.
func TestCheckpointKeepsDeadlines(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.config = actors.Config{MaxEvents: 100}
		w.restart()
		w.create("box-1", spec)
		later, idle := time.Now().Add(time.Hour), 2*time.Hour
		w.request("box-1", lifecycle.Extend{ExpiresAt: &later, IdleTTL: &idle})
		for i := range 200 {
			w.exec("box-1", "exec-"+string(rune('a'+i%26))+string(rune('a'+i/26)))
		}
		w.restart()
		view, err := w.system.Sandbox("box-1")
		if err != nil || !view.ExpiresAt.Equal(later) || view.State.IdleTtl.AsDuration() != idle {
			t.Errorf("the sandbox is %+v, %v", view, err)
		}
	})
}
