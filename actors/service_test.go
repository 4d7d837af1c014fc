package actors_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

var served = &agboxv1.CreateSpec{Image: "image", OptionalServices: []*agboxv1.ServiceSpec{{Name: "cache", Image: "image"}}}

// TestOptionalService: it is told of once, over a restart too, started again with the sandbox, and missed when it ends.
func TestOptionalService(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", served)
		w.expect("box-1", "ACCEPTED PREPARING READY SERVICE_READY")
		w.restart()
		w.expect("box-1", "ACCEPTED PREPARING READY SERVICE_READY")
		w.request("box-1", lifecycle.Stop{})
		w.request("box-1", lifecycle.Resume{})
		w.expect("box-1", "ACCEPTED PREPARING READY SERVICE_READY STOP_REQUESTED STOPPED ACCEPTED READY SERVICE_READY")
		w.runtime.Lose("box-1", "cache")
		synctest.Wait()
		w.expect("box-1", "ACCEPTED PREPARING READY SERVICE_READY STOP_REQUESTED STOPPED ACCEPTED READY SERVICE_READY SERVICE_FAILED")
		if calls := w.runtime.Calls(); !slices.Contains(calls, "start again cache in box-1") {
			t.Errorf("the runtime was asked for %v", calls)
		}
	})
}

// TestOptionalServiceFails: its failure is told and nothing else happens.
func TestOptionalServiceFails(t *testing.T) {
	for _, step := range []string{"prepare", "start", "await"} {
		inWorld(t, func(t *testing.T, w *world) {
			w.runtime.Before = func(_ context.Context, call string) error {
				if strings.HasPrefix(call, step+" cache") {
					return errors.New("no luck")
				}
				return nil
			}
			w.create("box-1", served)
			w.expect("box-1", "ACCEPTED PREPARING READY SERVICE_FAILED")
			w.exec("box-1", "exec-1")
		})
	}
}

// TestOptionalServiceHangs: a stop and a delete do not wait for it, and a daemon that starts anew waits for it again.
func TestOptionalServiceHangs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		hangs := true
		w.runtime.Before = func(ctx context.Context, call string) error {
			if hangs && strings.HasPrefix(call, "await cache") {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		w.create("box-1", served)
		w.create("box-2", served)
		w.request("box-1", lifecycle.Stop{})
		w.request("box-1", lifecycle.Delete{})
		w.expect("box-1", "ACCEPTED PREPARING READY STOP_REQUESTED STOPPED DELETE_REQUESTED DELETED")
		hangs = false
		w.restart()
		w.expect("box-2", "ACCEPTED PREPARING READY SERVICE_READY")
	})
}

// TestCommandEnds: the sandbox is halted before anybody hears that it failed, and ends that are on disk by then are told.
func TestCommandEnds(t *testing.T) {
	result := runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FINISHED, ExitCode: 3}
	for keep, want := range map[string]string{
		"":     "ACCEPTED PREPARING READY EXEC_STARTED EXEC_CANCELLED COMMAND_ENDED FAILED",
		"keep": "ACCEPTED PREPARING READY EXEC_STARTED COMMAND_ENDED",
	} {
		inWorld(t, func(t *testing.T, w *world) {
			ends := make(chan struct{})
			w.runtime.Run = func(ctx context.Context, request *agboxv1.CreateExecRequest) (runtime.ExecResult, error) {
				if request.ExecId != "_primary" {
					return w.runtime.UntilCancelled(ctx, request)
				}
				select {
				case <-ends:
					w.runtime.Record("_primary", result)
					return result, nil
				case <-ctx.Done():
					return runtime.ExecResult{}, ctx.Err()
				}
			}
			w.runtime.Before = func(_ context.Context, call string) error {
				if call == "halt box-1" {
					w.runtime.Record("exec-1", runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_CANCELLED, Signal: 9})
				}
				return nil
			}
			w.create("box-1", &agboxv1.CreateSpec{Image: "image", Command: []string{"serve"}, OnCommandEnd: keep})
			w.exec("box-1", "exec-1")
			w.restart() // the command goes on
			close(ends)
			synctest.Wait()
			w.expect("box-1", want)
			if halted := slices.Contains(w.runtime.Calls(), "halt box-1"); halted != (keep == "") {
				t.Errorf("on_command_end %q: halted is %v", keep, halted)
			}
			if keep == "" {
				view, err := w.system.Sandbox("box-1")
				if err != nil || view.State.ErrorCode != lifecycle.CodeCrashed {
					t.Errorf("the sandbox is %+v, %v", view.State, err)
				}
			}
		})
	}
}

// TestCommandIsActivity: a sandbox whose own command runs is not idle.
func TestCommandIsActivity(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.config.IdleTTL = time.Minute
		w.restart()
		ends := make(chan struct{})
		w.runtime.Run = func(ctx context.Context, _ *agboxv1.CreateExecRequest) (runtime.ExecResult, error) {
			select {
			case <-ends:
				return runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FINISHED}, nil
			case <-ctx.Done():
				return runtime.ExecResult{}, ctx.Err()
			}
		}
		w.create("box-1", &agboxv1.CreateSpec{Image: "image", Command: []string{"serve"}, OnCommandEnd: "keep"})
		time.Sleep(time.Hour)
		w.expect("box-1", "ACCEPTED PREPARING READY")
		close(ends)
		time.Sleep(2 * time.Minute)
		w.expect("box-1", "ACCEPTED PREPARING READY COMMAND_ENDED STOP_REQUESTED STOPPED")
	})
}
