package actors_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

var spec = &agboxv1.CreateSpec{Image: "image"}

func TestLife(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		w.exec("box-1", "exec-1")
		w.request("box-1", lifecycle.Stop{Reason: "stop_requested"})
		w.request("box-1", lifecycle.Resume{})
		w.request("box-1", lifecycle.Delete{Reason: "delete_requested"})
		w.expect("box-1", "ACCEPTED PREPARING READY EXEC_STARTED EXEC_FINISHED STOP_REQUESTED STOPPED ACCEPTED READY DELETE_REQUESTED DELETED")
		w.request("box-1", lifecycle.Delete{Reason: "delete_requested"}) // accepted, and does nothing more
		want := []string{"create box-1", "exec exec-1", "recorded exec-1", "stop box-1", "resume box-1", "remove box-1"}
		if calls := w.runtime.Calls(); !slices.Equal(calls, want) {
			t.Errorf("the runtime was asked for %v, want %v", calls, want)
		}
	})
}

func TestRefusals(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gate("stop box-1")
		w.create("box-1", spec)
		w.exec("box-1", "exec-1")
		w.request("box-1", lifecycle.Stop{Reason: "stop_requested"})
		before := w.log("box-1")
		ctx := t.Context()
		for name, refused := range map[string]struct {
			err  func() error
			want error
		}{
			"stop while stopping": {func() error { _, err := w.system.Request(ctx, "box-1", lifecycle.Stop{}); return err }, lifecycle.ErrInvalidState},
			"resume of ready":     {func() error { _, err := w.system.Request(ctx, "box-1", lifecycle.Resume{}); return err }, lifecycle.ErrInvalidState},
			"unknown sandbox":     {func() error { _, err := w.system.Request(ctx, "box-9", lifecycle.Resume{}); return err }, actors.ErrNotFound},
			"id used":             {func() error { _, err := w.system.Create(ctx, "box-1", spec, ""); return err }, actors.ErrSandboxIDTaken},
			"exec while stopping": {func() error {
				return w.system.StartExec(ctx, &agboxv1.CreateExecRequest{SandboxId: "box-1", ExecId: "exec-2"}, "")
			}, lifecycle.ErrNotReady},
			"cancel of ended exec": {func() error { return w.system.CancelExec(ctx, "exec-1") }, runtime.ErrExecTerminal},
			"cancel of no exec":    {func() error { return w.system.CancelExec(ctx, "exec-9") }, actors.ErrExecNotFound},
		} {
			if err := refused.err(); !errors.Is(err, refused.want) {
				t.Errorf("%s: got %v, want %v", name, err, refused.want)
			}
		}
		w.expect("box-1", before)
	})
}

func TestExecIDIsUsedOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		w.create("box-2", spec)
		w.exec("box-1", "exec-1")
		err := w.system.StartExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: "box-2", ExecId: "exec-1"}, "")
		if !errors.Is(err, actors.ErrExecIDTaken) {
			t.Errorf("an exec id that another sandbox used: %v", err)
		}
		w.expect("box-2", "ACCEPTED PREPARING READY")
	})
}

func TestIDStaysTakenOverRestart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		w.request("box-1", lifecycle.Delete{})
		w.restart()
		if _, err := w.system.Create(t.Context(), "box-1", spec, ""); !errors.Is(err, actors.ErrSandboxIDTaken) {
			t.Errorf("got %v", err)
		}
		w.request("box-1", lifecycle.Delete{})
		if _, err := w.system.Request(t.Context(), "box-1", lifecycle.Resume{}); !errors.Is(err, lifecycle.ErrInvalidState) {
			t.Errorf("resume of a deleted sandbox: %v", err)
		}
	})
}

func TestDeleteDuringCreate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gate("create box-1")
		w.create("box-1", spec)
		w.request("box-1", lifecycle.Delete{Reason: "delete_requested"})
		w.expect("box-1", "ACCEPTED PREPARING DELETE_REQUESTED DELETED")
		if calls := w.runtime.Calls(); !slices.Equal(calls, []string{"create box-1", "remove box-1"}) {
			t.Errorf("the runtime was asked for %v", calls)
		}
	})
}

func TestDeleteDuringStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gate("stop box-1")
		w.runtime.Run = w.runtime.UntilCancelled
		w.create("box-1", spec)
		w.exec("box-1", "exec-1")
		w.request("box-1", lifecycle.Stop{})
		w.request("box-1", lifecycle.Delete{})
		w.expect("box-1", "ACCEPTED PREPARING READY EXEC_STARTED STOP_REQUESTED DELETE_REQUESTED EXEC_CANCELLED DELETED")
	})
}

func TestFailures(t *testing.T) {
	for call, test := range map[string]struct {
		after []lifecycle.Command
		code  string
	}{
		"create box-1": {nil, lifecycle.CodeCreateFailed},
		"stop box-1":   {[]lifecycle.Command{lifecycle.Stop{}}, lifecycle.CodeStopFailed},
		"resume box-1": {[]lifecycle.Command{lifecycle.Stop{}, lifecycle.Resume{}}, lifecycle.CodeResumeFailed},
		"remove box-1": {[]lifecycle.Command{lifecycle.Delete{}}, lifecycle.CodeDeleteFailed},
	} {
		t.Run(call, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				g := w.gate(call)
				w.create("box-1", spec)
				for _, c := range test.after {
					w.request("box-1", c)
				}
				g.open <- errors.New("the engine said no")
				synctest.Wait()
				view, err := w.system.Sandbox("box-1")
				if err != nil || view.State.Phase != lifecycle.Failed || view.State.ErrorCode != test.code || view.State.ErrorMessage != "the engine said no" {
					t.Fatalf("the sandbox is %+v, %v", view.State, err)
				}
				g.call = ""
				w.request("box-1", lifecycle.Delete{})
				if view, _ := w.system.Sandbox("box-1"); view.State.Phase != lifecycle.Deleted {
					t.Errorf("a FAILED sandbox was deleted and is %v", view.State.Phase)
				}
			})
		})
	}
}

func TestPanicInOperationIsAFailure(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.runtime.Before = func(context.Context, string) error { panic("boom") }
		w.create("box-1", spec)
		if view, _ := w.system.Sandbox("box-1"); view.State.Phase != lifecycle.Failed || !strings.Contains(view.State.ErrorMessage, "boom") {
			t.Errorf("the sandbox is %+v", view.State)
		}
		w.runtime.Before = nil
	})
}

func TestCancelExec(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.runtime.Run = w.runtime.UntilCancelled
		w.create("box-1", spec)
		w.exec("box-1", "exec-1")
		if err := w.system.CancelExec(t.Context(), "exec-1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.expect("box-1", "ACCEPTED PREPARING READY EXEC_STARTED EXEC_CANCELLED")
		exec, err := w.db.Exec("box-1", "exec-1")
		if err != nil || exec.End.GetExec().GetExitCode() != 143 {
			t.Errorf("exec is %+v, %v", exec, err)
		}
	})
}

func TestPrimaryDies(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.runtime.Run = w.runtime.UntilCancelled
		w.create("box-1", spec)
		w.exec("box-1", "exec-1")
		w.exec("box-1", "exec-2")
		// One of them had ended, and said so on disk, before the container went.
		w.runtime.Record("exec-2", runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FINISHED, ExitCode: 5})
		w.runtime.Die("box-1")
		synctest.Wait()
		w.expect("box-1", "ACCEPTED PREPARING READY EXEC_STARTED EXEC_STARTED EXEC_FINISHED EXEC_FAILED FAILED")
		view, _ := w.system.Sandbox("box-1")
		if view.State.ErrorCode != runtime.CodeContainerNotRunning || !strings.Contains(view.State.ErrorMessage, "137") {
			t.Errorf("the sandbox is %+v", view.State)
		}
		if exec, _ := w.db.Exec("box-1", "exec-2"); exec.End.GetExec().GetExitCode() != 5 {
			t.Errorf("a recorded exit code is lost: %v", exec.End)
		}
	})
}

// TestPrimaryDiesAsCreateEnds: the death is told before READY is recorded, and must not be forgotten.
func TestPrimaryDiesAsCreateEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.gate("create box-1")
		w.create("box-1", spec)
		dying := make(chan struct{})
		w.runtime.Before = func(ctx context.Context, call string) error { return nil }
		go func() { w.runtime.Die("box-1"); close(dying) }()
		<-dying
		synctest.Wait()
		g.open <- nil
		synctest.Wait()
		calls := w.runtime.Calls()
		if calls[len(calls)-1] != "observe box-1" {
			t.Errorf("nobody looked at the primary: %v", calls)
		}
	})
}

func TestStopIsNeverAFailure(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.gate("stop box-1")
		w.create("box-1", spec)
		w.request("box-1", lifecycle.Stop{Reason: "stop_requested"})
		w.runtime.Die("box-1") // as Docker reports of every stop
		synctest.Wait()
		g.open <- nil
		synctest.Wait()
		w.expect("box-1", "ACCEPTED PREPARING READY STOP_REQUESTED STOPPED")
	})
}

func TestIdleStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.runtime.Run = w.runtime.UntilCancelled
		w.create("box-1", &agboxv1.CreateSpec{IdleTtl: durationpb.New(30 * time.Minute)})
		w.create("never", &agboxv1.CreateSpec{IdleTtl: durationpb.New(0)})
		time.Sleep(20 * time.Minute)
		w.exec("box-1", "exec-1")
		time.Sleep(2 * time.Hour) // a running exec is activity, whatever the clock says
		synctest.Wait()
		w.expect("box-1", "ACCEPTED PREPARING READY EXEC_STARTED")
		if err := w.system.CancelExec(t.Context(), "exec-1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(29 * time.Minute)
		w.restart() // the deadline is in the log
		time.Sleep(59 * time.Second)
		synctest.Wait()
		w.expect("box-1", "ACCEPTED PREPARING READY EXEC_STARTED EXEC_CANCELLED")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.expect("box-1", "ACCEPTED PREPARING READY EXEC_STARTED EXEC_CANCELLED STOP_REQUESTED STOPPED")
		events, _ := w.db.Events("box-1", 5, 1)
		if reason := events[0].GetSandboxPhase().GetReason(); reason != lifecycle.ReasonIdleTTL {
			t.Errorf("the reason is %q", reason)
		}
		w.expect("never", "ACCEPTED PREPARING READY")
	})
}

func TestRestartCarriesOn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.gate("create box-1")
		w.runtime.Run = w.runtime.UntilCancelled
		w.create("box-1", spec)
		w.create("box-2", spec)
		w.exec("box-2", "exec-1")
		w.restart()
		w.expect("box-1", "ACCEPTED PREPARING PREPARING")
		g.open <- nil
		synctest.Wait()
		w.expect("box-1", "ACCEPTED PREPARING PREPARING READY")
		w.expect("box-2", "ACCEPTED PREPARING READY EXEC_STARTED") // and it runs on
		if err := w.system.CancelExec(t.Context(), "exec-1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.expect("box-2", "ACCEPTED PREPARING READY EXEC_STARTED EXEC_CANCELLED")
	})
}

func TestShutdownRefusesRequests(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		w.system.Shutdown(t.Context())
		if _, err := w.system.Create(t.Context(), "box-2", spec, ""); !errors.Is(err, actors.ErrShuttingDown) {
			t.Errorf("create: %v", err)
		}
		if _, err := w.system.Request(t.Context(), "box-1", lifecycle.Stop{}); !errors.Is(err, actors.ErrShuttingDown) {
			t.Errorf("stop: %v", err)
		}
	})
}
