package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

func (w *world) phase(id string) lifecycle.Phase {
	w.t.Helper()
	view, err := w.system.Sandbox(id)
	if err != nil {
		w.t.Fatal(err)
	}
	return view.State.Phase
}

// TestCrash: whoever waits hears at once that the outcome is unknown, and the sandbox goes on from its log.
func TestCrash(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		w.create("box-2", spec)
		w.runtime.Run = w.runtime.UntilCancelled
		w.exec("box-1", "exec-1")
		w.runtime.Recorded = func(string) { panic("boom") }
		w.runtime.Record("exec-1", runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FINISHED, ExitCode: 4})
		if err := w.system.CancelExec(t.Context(), "exec-1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.runtime.Recorded = nil
		w.exec("box-2", "exec-2") // no other sandbox notices
		time.Sleep(time.Second)
		synctest.Wait()
		w.expect("box-1", "ACCEPTED PREPARING READY EXEC_STARTED EXEC_CANCELLED")
		w.request("box-1", lifecycle.Stop{Reason: "stop_requested"})
		if phase := w.phase("box-1"); phase != lifecycle.Stopped {
			t.Errorf("after the crash a stop leads to %v", phase)
		}
	})
}

func TestCrashAnswersTheAsker(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		w.runtime.Run = w.runtime.UntilCancelled
		w.exec("box-1", "exec-1")
		w.runtime.Recorded = func(string) { panic("boom") }
		// The end of the exec and the stop are taken together, and the first of them crashes.
		asked := make(chan error, 1)
		if err := w.system.CancelExec(t.Context(), "exec-1"); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := w.system.Request(t.Context(), "box-1", lifecycle.Stop{})
			asked <- err
		}()
		synctest.Wait()
		w.runtime.Recorded = nil
		if err := <-asked; err != nil && !errors.Is(err, runtime.ErrOutcomeUnknown) {
			t.Errorf("the asker hears %v", err)
		}
		time.Sleep(time.Second)
	})
}

func TestCrashLoop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		w.create("box-2", spec)
		w.runtime.Recorded = func(string) { panic("boom") }
		for i := range 6 {
			w.exec("box-1", fmt.Sprintf("exec-%d", i))
			time.Sleep(time.Second)
			synctest.Wait()
		}
		w.runtime.Recorded = nil
		view, err := w.system.Sandbox("box-1")
		if err != nil || view.State.Phase != lifecycle.Failed || view.State.ErrorCode != lifecycle.CodeCrashLoop || !strings.Contains(view.State.ErrorMessage, "boom") {
			t.Fatalf("the sandbox is %+v, %v", view.State, err)
		}
		if calls := w.runtime.Calls(); !slices.Contains(calls, "stop box-1") {
			t.Errorf("its containers were not stopped: %v", calls)
		}
		w.request("box-1", lifecycle.Delete{})
		if phase := w.phase("box-1"); phase != lifecycle.Deleted {
			t.Errorf("after a delete it is %v", phase)
		}
		w.exec("box-2", "exec-9")
		w.expect("box-2", "ACCEPTED PREPARING READY EXEC_STARTED EXEC_FINISHED")
	})
}

func TestRepeatedRequests(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		other := &agboxv1.CreateSpec{Image: "other"}
		if _, err := w.system.Create(ctx, "box-1", spec, "mark-1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.restart()
		view, err := w.system.Create(ctx, "box-1", &agboxv1.CreateSpec{Image: "image"}, "mark-1")
		if err != nil || view.State.SandboxID != "box-1" || view.State.Phase != lifecycle.Ready {
			t.Errorf("a repeated create: %+v, %v", view.State, err)
		}
		for name, again := range map[string]func() error{
			"no mark":      func() error { _, err := w.system.Create(ctx, "box-1", spec, ""); return err },
			"another mark": func() error { _, err := w.system.Create(ctx, "box-1", spec, "mark-2"); return err },
			"another spec": func() error { _, err := w.system.Create(ctx, "box-1", other, "mark-1"); return err },
		} {
			if err := again(); !errors.Is(err, actors.ErrSandboxIDTaken) {
				t.Errorf("create with %s: %v", name, err)
			}
		}
		exec := func(command string) *agboxv1.CreateExecRequest {
			return &agboxv1.CreateExecRequest{SandboxId: "box-1", ExecId: "exec-1", Command: []string{command}}
		}
		if err := w.system.StartExec(ctx, exec("true"), ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := w.system.StartExec(ctx, exec("true"), "mark-3"); err != nil {
			t.Errorf("a repeated exec: %v", err)
		}
		w.request("box-1", lifecycle.Stop{})
		if err := w.system.StartExec(ctx, exec("true"), "mark-3"); err != nil {
			t.Errorf("a repeated exec on a sandbox that is stopped by now: %v", err)
		}
		w.request("box-1", lifecycle.Resume{})
		for name, again := range map[string]func() error{
			"no mark":         func() error { return w.system.StartExec(ctx, exec("true"), "") },
			"another command": func() error { return w.system.StartExec(ctx, exec("false"), "mark-3") },
		} {
			if err := again(); !errors.Is(err, actors.ErrExecIDTaken) {
				t.Errorf("exec with %s: %v", name, err)
			}
		}
		if execs := strings.Count(strings.Join(w.runtime.Calls(), " "), "exec exec-1"); execs != 1 {
			t.Errorf("the command ran %d times", execs)
		}
	})
}

func TestRetention(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.end()
		w.config = actors.Config{CleanupTTL: time.Hour, EventRetentionTTL: 24 * time.Hour}
		w.start()
		w.create("box-1", spec)
		w.create("box-2", spec)
		w.request("box-1", lifecycle.Stop{})
		time.Sleep(30 * time.Minute)
		w.restart()
		time.Sleep(29 * time.Minute)
		if phase := w.phase("box-1"); phase != lifecycle.Stopped {
			t.Fatalf("before its time the sandbox is %v", phase)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		w.expect("box-1", "ACCEPTED PREPARING READY STOP_REQUESTED STOPPED DELETE_REQUESTED DELETED")
		events, _ := w.db.Events("box-1", 5, 1)
		if reason := events[0].GetSandboxPhase().GetReason(); reason != lifecycle.ReasonCleanupTTL {
			t.Errorf("the reason is %q", reason)
		}
		w.request("box-2", lifecycle.Delete{})
		time.Sleep(12 * time.Hour)
		w.restart()
		time.Sleep(11 * time.Hour)
		if phase := w.phase("box-1"); phase != lifecycle.Deleted {
			t.Errorf("within its retention the sandbox is %v", phase)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		for _, id := range []string{"box-1", "box-2"} {
			if _, err := w.system.Sandbox(id); !errors.Is(err, actors.ErrNotFound) {
				t.Errorf("after its retention %s is still there: %v", id, err)
			}
			if !slices.Contains(w.runtime.Calls(), "forget "+id) {
				t.Errorf("the logs of %s are still there", id)
			}
			if _, err := w.system.Create(t.Context(), id, spec, ""); !errors.Is(err, actors.ErrSandboxIDTaken) {
				t.Errorf("the id %s can be used again: %v", id, err)
			}
		}
	})
}

func TestMaxEvents(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.end()
		w.config = actors.Config{MaxEvents: 100}
		w.start()
		w.create("box-1", spec)
		w.runtime.Run = w.runtime.UntilCancelled
		w.exec("box-1", "long")
		w.runtime.Run = nil
		for i := range 300 {
			w.exec("box-1", fmt.Sprintf("exec-%d", i))
		}
		before, _ := w.system.Sandbox("box-1")
		oldest, newest, err := w.db.Bounds("box-1")
		if err != nil || newest != 604 || newest-oldest+1 > 110 || newest-oldest+1 < 100 {
			t.Errorf("events %d to %d are kept, %v", oldest, newest, err)
		}
		w.runtime.Run = w.runtime.UntilCancelled
		w.restart()
		after, err := w.system.Sandbox("box-1")
		if err != nil || after.State.Phase != lifecycle.Ready || !proto.Equal(after.State.State, before.State.State) {
			t.Errorf("after a restart the sandbox is\n%+v, it was\n%+v, %v", after.State, before.State, err)
		}
		if _, err := w.system.ExecOwner("exec-0"); !errors.Is(err, actors.ErrExecNotFound) {
			t.Errorf("an exec whose end was trimmed: %v", err)
		}
		if _, err := w.system.ExecOwner("exec-299"); err != nil {
			t.Errorf("a recent exec: %v", err)
		}
		if err := w.system.CancelExec(t.Context(), "long"); err != nil {
			t.Errorf("the exec that runs since before the trimmed events: %v", err)
		}
	})
}

func TestEngineGoesAway(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var back atomic.Bool
		w.runtime.Before = func(context.Context, string) error {
			if !back.Load() {
				return fmt.Errorf("%w: connection refused", runtime.ErrUnreachable)
			}
			return nil
		}
		w.create("box-1", spec)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if phase := w.phase("box-1"); phase != lifecycle.Pending {
			t.Errorf("while the engine is gone the sandbox is %v", phase)
		}
		back.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if phase := w.phase("box-1"); phase != lifecycle.Ready {
			t.Errorf("when the engine is back the sandbox is %v", phase)
		}
	})
}

// TestLateObjects: what an engine makes of a sandbox after it was DELETED, by this daemon or the one before, goes.
func TestLateObjects(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		w.request("box-1", lifecycle.Delete{})
		removals := func() int { return strings.Count(strings.Join(w.runtime.Calls(), "|"), "remove box-1") }
		w.runtime.Appear("box-1")
		synctest.Wait()
		if n := removals(); n != 2 {
			t.Errorf("removed %d times", n)
		}
		w.runtime.Orphans = nil
		w.restart()
		before := removals()
		w.runtime.Appear("box-1")
		synctest.Wait()
		if n := removals(); n != before+1 {
			t.Errorf("after a restart removed %d times more", n-before)
		}
	})
}

func TestShutdownPolicies(t *testing.T) {
	for policy, want := range map[actors.ShutdownPolicy]lifecycle.Phase{
		"": lifecycle.Ready, actors.KeepSandboxes: lifecycle.Ready,
		actors.StopSandboxes: lifecycle.Stopped, actors.DeleteSandboxes: lifecycle.Deleted,
	} {
		t.Run(string(policy), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.end()
				w.config = actors.Config{OnShutdown: policy}
				w.start()
				w.create("box-1", spec)
				w.end()
				w.config = actors.Config{}
				w.start()
				if phase := w.phase("box-1"); phase != want {
					t.Errorf("afterwards the sandbox is %v, want %v", phase, want)
				}
			})
		})
	}
}

func TestClosedJournalRefusesRequests(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		if err := w.db.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.system.Request(t.Context(), "box-1", lifecycle.Stop{}); !errors.Is(err, persist.ErrClosed) {
			t.Errorf("got %v", err)
		}
		w.restart()
		if phase := w.phase("box-1"); phase != lifecycle.Ready {
			t.Errorf("a request that could not be recorded made the sandbox %v", phase)
		}
	})
}
