package actors_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// record puts an exec into the log that its sandbox does not know of, as a write does whose sync failed.
func (w *world) record(id, execID string) {
	w.t.Helper()
	view, err := w.system.Sandbox(id)
	if err != nil {
		w.t.Fatal(err)
	}
	events, err := lifecycle.Decide(view.State, lifecycle.Policy{}, lifecycle.StartExec{ExecID: execID}, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	err = w.db.Append(persist.Entry{SandboxID: id, After: view.State.Sequence, Events: events, At: time.Now(),
		StartExec: &agboxv1.CreateExecRequest{SandboxId: id, ExecId: execID, Command: []string{"true"}}})
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestLogIsAhead: a sandbox takes in what its log holds, the commands to run included, and goes on.
func TestLogIsAhead(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		w.record("box-1", "exec-1")
		w.exec("box-1", "exec-2")
		w.request("box-1", lifecycle.Stop{})
		w.expect("box-1", "ACCEPTED PREPARING READY EXEC_STARTED EXEC_STARTED EXEC_FINISHED EXEC_FINISHED STOP_REQUESTED STOPPED")
	})
}

// TestExecIsFoundInTheLog: also before its sandbox knows of it.
func TestExecIsFoundInTheLog(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		w.record("box-1", "exec-1")
		if owner, err := w.system.ExecOwner("exec-1"); owner != "box-1" || err != nil {
			t.Errorf("its owner is %q, %v", owner, err)
		}
		if err := w.system.SignalExec(t.Context(), "exec-1", 15); err != nil {
			t.Errorf("a signal: %v", err)
		}
		if _, err := w.system.ExecOwner("exec-2"); !errors.Is(err, actors.ErrExecNotFound) {
			t.Errorf("one that there is not: %v", err)
		}
	})
}

// TestIdlePauseWithoutLog: an exec that would wake the sandbox is refused once when the log takes nothing.
func TestIdlePauseWithoutLog(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.config.IdleTTL = time.Minute
		w.restart()
		w.create("box-1", &agboxv1.CreateSpec{Image: "image", OnIdle: "pause"})
		pass(2 * time.Minute)
		if err := w.db.Close(); err != nil {
			t.Fatal(err)
		}
		err := w.system.StartExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: "box-1", ExecId: "exec-1", Command: []string{"true"}}, "")
		if !errors.Is(err, persist.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}

// TestCreateIsAskedForTwiceAtOnce: the second waits for what becomes of the first.
func TestCreateIsAskedForTwiceAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		looked := make(chan struct{})
		w.runtime.Conflicts = func() { <-looked }
		results := make(chan error, 3)
		for _, mark := range []string{"mark", "mark", "other"} {
			go func() {
				_, err := w.system.Create(t.Context(), "box-1", spec, mark)
				results <- err
			}()
			synctest.Wait()
		}
		if _, err := w.system.Request(t.Context(), "box-1", lifecycle.Stop{}); !errors.Is(err, actors.ErrNotFound) {
			t.Errorf("before it was accepted: %v", err)
		}
		close(looked)
		taken := 0
		for range 3 {
			err := <-results
			if errors.Is(err, actors.ErrSandboxIDTaken) {
				taken++
			} else if err != nil {
				t.Error(err)
			}
		}
		if taken != 1 {
			t.Errorf("%d of three were refused", taken)
		}
	})
}
