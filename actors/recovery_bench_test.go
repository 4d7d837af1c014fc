package actors_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// BenchmarkRecovery is the time from opening a database with 1,000 sandboxes and 1,000,000 events, none of them
// covered by a checkpoint, to the first answer; and the memory that this takes.
func BenchmarkRecovery(b *testing.B) {
	const sandboxes, events = 1_000, 1_000
	path := filepath.Join(b.TempDir(), "ids.db")
	db, err := persist.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	for i := range sandboxes {
		fill(b, db, fmt.Sprintf("box-%04d", i), events)
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	for b.Loop() {
		db, err := persist.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		fake := actorstest.New()
		system, err := actors.Start(actors.Config{}, db, fake, log)
		if err != nil {
			b.Fatal(err)
		}
		view, err := system.Sandbox("box-0500")
		if err != nil || view.State.Sequence != events {
			b.Fatalf("%+v, %v", view.State, err)
		}
		b.StopTimer()
		if _, err := system.Sandboxes(func(*agboxv1.CreateSpec) bool { return true }); err != nil {
			b.Fatal(err)
		}
		var memory goruntime.MemStats
		goruntime.ReadMemStats(&memory)
		b.ReportMetric(float64(memory.Sys)/(1<<20), "MB-of-the-system")
		system.Shutdown(context.Background())
		db.Close()
		b.StartTimer()
	}
}

// fill gives a sandbox a log of n events that ends STOPPED, so that nobody looks after it, without any checkpoint.
func fill(b *testing.B, db *persist.DB, id string, n int) {
	b.Helper()
	state := lifecycle.New(id, nil)
	at := time.Unix(1_700_000_000, 0)
	entry := persist.Entry{SandboxID: id, Create: &agboxv1.CreateSpec{Image: "image"}, At: at}
	var entries []persist.Entry
	take := func(c lifecycle.Command, e persist.Entry) {
		events, err := lifecycle.Decide(state, lifecycle.Policy{}, c, at)
		if err != nil {
			b.Fatal(err)
		}
		e.SandboxID, e.After, e.Events, e.At = id, state.Sequence, events, at
		for _, event := range events {
			state = lifecycle.Fold(state, event)
		}
		entries = append(entries, e)
	}
	take(lifecycle.Create{}, entry)
	take(lifecycle.OperationDone{Operation: lifecycle.Creating}, persist.Entry{})
	for i := 0; len(entries) < n-2; i++ {
		exec := fmt.Sprintf("%s-exec-%d", id, i)
		take(lifecycle.StartExec{ExecID: exec}, persist.Entry{StartExec: &agboxv1.CreateExecRequest{SandboxId: id, ExecId: exec, Command: []string{"true"}}})
		take(lifecycle.ExecEnded{ExecID: exec, Result: runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FINISHED, Started: at, Ended: at}}, persist.Entry{})
	}
	take(lifecycle.Stop{}, persist.Entry{})
	take(lifecycle.OperationDone{Operation: lifecycle.Stopping}, persist.Entry{})
	for _, err := range db.AppendAll(entries) {
		if err != nil {
			b.Fatal(err)
		}
	}
}
