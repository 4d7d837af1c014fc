package actors_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// count is how often the runtime was asked for a call.
func (w *world) count(call string) (n int) {
	for _, c := range w.runtime.Calls() {
		if c == call {
			n++
		}
	}
	return n
}

// TestOrphans: what the log says is gone goes at once, what this process made goes after a while, and what no log ever
// knew is listed, and goes after a day, restarts included.
func TestOrphans(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		w.create("box-2", spec)
		w.request("box-2", lifecycle.Delete{})
		w.gate("snapshot box-1")
		go func() { _, _ = w.fork("box-1", "fork") }() // which the end of the daemon interrupts
		synctest.Wait()
		w.end()
		w.runtime.Orphans = map[string]bool{"box-1": true, "box-2": true, "lost": true, "young": false, "fork": true}
		w.runtime.Histories = []string{"box-2", "lost", "logs", "fork"}
		w.start()
		expect := func(when string, want map[string]int) {
			t.Helper()
			for call, n := range want {
				if got := w.count(call); got != n {
					t.Errorf("%s: %s %d times, want %d", when, call, got, n)
				}
			}
		}
		// Its own delete removed box-2 once before.
		expect("at once", map[string]int{"remove box-1": 0, "remove box-2": 2, "forget box-2": 0, "remove lost": 0, "forget lost": 0,
			"forget logs": 0, "remove young": 0, "remove fork": 1, "forget fork": 1})
		list, err := w.system.Orphans()
		if err != nil || len(list) != 2 || list[0].SandboxID != "logs" || list[1].SandboxID != "lost" ||
			!list[1].FoundAt.Equal(time.Now()) || list[1].RemovedAt.Sub(list[1].FoundAt) != 24*time.Hour {
			t.Errorf("listed are %v, %v", list, err)
		}
		w.runtime.SetOrphans(map[string]bool{"lost": true, "young": false})
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		expect("after minutes", map[string]int{"remove young": 1, "remove lost": 0})
		w.runtime.SetOrphans(map[string]bool{"lost": true})
		time.Sleep(12 * time.Hour)
		w.restart()
		time.Sleep(11 * time.Hour)
		synctest.Wait()
		expect("within the day", map[string]int{"remove lost": 0, "forget logs": 0})
		time.Sleep(time.Hour)
		synctest.Wait()
		expect("after the day", map[string]int{"remove lost": 1, "forget lost": 1, "forget logs": 1, "remove box-1": 0})
		if list, err := w.system.Orphans(); len(list) != 0 || err != nil {
			t.Errorf("then listed are %v, %v", list, err)
		}
	})
}

// TestTakeIn: with Adopt, what the database does not know becomes sandboxes as they are, with their execs.
func TestTakeIn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.runtime.Run = w.runtime.UntilCancelled
		w.create("known", spec)
		w.exec("known", "exec-1")
		w.end()
		w.runtime.Orphans = map[string]bool{"known": true, "running": true, "stopped": true, "broken": true}
		w.runtime.Histories = []string{"known", "running", "logs"}
		born := time.Now().Add(-time.Hour)
		w.runtime.Described = map[string]runtime.Found{
			"running": {Phase: lifecycle.Ready, CreatedAt: born, Spec: &agboxv1.CreateSpec{Image: "image-1",
				OptionalServices: []*agboxv1.ServiceSpec{{Name: "db"}}}},
			"stopped": {Phase: lifecycle.Stopped},
			"broken":  {Phase: lifecycle.Failed, Code: "BROKEN", Message: "its container is missing"},
			"logs":    {},
		}
		w.runtime.Execs = map[string][]string{"known": {"exec-1", "exec-2"}, "running": {"ended", "runs"}, "stopped": {"lost"}, "logs": {"long-ago"}}
		for _, id := range []string{"exec-2", "ended", "long-ago"} {
			w.runtime.Record(id, runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FINISHED, ExitCode: 7})
		}
		w.config.Adopt = true
		w.start()
		w.config.Adopt = false
		w.expect("known", "ACCEPTED PREPARING READY EXEC_STARTED EXEC_STARTED EXEC_FINISHED")
		w.expect("running", "RECOVERED SERVICE_READY EXEC_STARTED EXEC_FINISHED EXEC_STARTED")
		w.expect("stopped", "RECOVERED EXEC_STARTED EXEC_FAILED")
		w.expect("broken", "RECOVERED")
		w.expect("logs", "RECOVERED EXEC_STARTED EXEC_FINISHED DELETE_REQUESTED DELETED")
		w.restart()
		view, err := w.system.Sandbox("running")
		if err != nil || !view.State.Recovered || view.State.Phase != lifecycle.Ready || !view.State.CreatedAt.AsTime().Equal(born) || view.Spec.Image != "image-1" {
			t.Errorf("the running one is %+v, %v", view, err)
		}
		if exec, err := w.db.Exec("running", "ended"); err != nil || exec.End.GetExec().GetExitCode() != 7 {
			t.Errorf("its exec is %v, %v", exec, err)
		}
		if err := w.system.CancelExec(t.Context(), "runs"); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		w.exec("running", "next")
		w.request("running", lifecycle.Stop{})
		w.request("running", lifecycle.Resume{})
		w.request("running", lifecycle.Delete{})
		w.request("stopped", lifecycle.Resume{})
		if phase := w.phase("stopped"); phase != lifecycle.Ready {
			t.Errorf("the stopped one is resumed to %v", phase)
		}
		if view, err := w.system.Sandbox("broken"); err != nil || view.State.Phase != lifecycle.Failed || view.State.ErrorCode != "BROKEN" {
			t.Errorf("the broken one is %v, %v", view.State, err)
		}
		w.request("broken", lifecycle.Delete{})
		if list, err := w.system.Orphans(); len(list) != 0 || err != nil {
			t.Errorf("left are %v, %v", list, err)
		}
	})
}

// TestForget: what the database does not know goes at once when its number is said, and nothing goes when that is wrong.
func TestForget(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("known", spec)
		w.end()
		w.runtime.Orphans = map[string]bool{"known": true, "lost": true}
		w.runtime.Histories = []string{"known", "lost", "logs"}
		wrong, right := 1, 2
		w.config.Forget = &wrong
		var err error
		if w.db, err = persist.Open(w.path); err != nil {
			t.Fatal(err)
		}
		_, err = actors.Start(w.config, w.db, w.runtime, slog.New(slog.NewTextHandler(t.Output(), nil)))
		if !errors.Is(err, actors.ErrOrphanCount) || w.count("remove lost") != 0 || w.count("forget logs") != 0 {
			t.Errorf("a wrong number gives %v and %v", err, w.runtime.Calls())
		}
		w.db.Close()
		w.config.Forget = &right
		w.start()
		w.config.Forget = nil
		for call, n := range map[string]int{"remove lost": 1, "forget lost": 1, "forget logs": 1, "remove known": 0, "forget known": 0} {
			if got := w.count(call); got != n {
				t.Errorf("%s %d times, want %d", call, got, n)
			}
		}
	})
}

// TestTrimmedExecsTakeTheirFilesAlong: also when the daemon ended in between.
func TestTrimmedExecsTakeTheirFilesAlong(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.end()
		w.config.MaxEvents = 100
		w.start()
		w.create("box-1", spec)
		for i := range 120 {
			w.exec("box-1", fmt.Sprintf("exec-%03d", i))
		}
		events, err := w.db.Events("box-1", 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		kept := map[string]bool{}
		for _, e := range events {
			kept[e.GetExec().GetExecId()] = true
		}
		for i := range 120 {
			id := fmt.Sprintf("exec-%03d", i)
			if _, err := w.db.Exec("box-1", id); (err != nil) != (w.count("forget "+id+" of box-1") == 1) {
				t.Errorf("%s: %v, and its files were removed %d times", id, err, w.count("forget "+id+" of box-1"))
			}
		}
		if w.count("forget exec-000 of box-1") != 1 {
			t.Error("nothing was trimmed")
		}
		if list, err := w.db.TrimmedExecs(1); len(list) != 0 || err != nil {
			t.Errorf("still to be removed are %v, %v", list, err)
		}
	})
}

// TestFailedCreateLeavesNoTrace: one that the log could not take, and whose caller had gone by then, holds no id.
func TestFailedCreateLeavesNoTrace(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		long := "box-" + strings.Repeat("x", 40_000) // longer than the log can take
		gone, leave := context.WithCancel(t.Context())
		leave()
		for range 3 {
			if _, err := w.system.Create(gone, long, spec, ""); err == nil {
				t.Fatal("it was taken")
			}
			synctest.Wait()
		}
		if _, known := w.system.Spec(long); known {
			t.Error("the sandbox is known")
		}
		sandboxes, _ := w.system.Counts()
		if len(sandboxes) != 0 || slices.Contains(w.runtime.Calls(), "create "+long) {
			t.Errorf("there are %v", sandboxes)
		}
	})
}
