package actors_test

import (
	"context"
	"maps"
	"sync"
	"testing"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// TestTurns: the runtime hears whose each operation is and whether anybody waits for it, and what it tells of the line is in the
// log, each thing once.
func TestTurns(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		turns := map[string]runtime.Turn{}
		w.end()
		w.config.OwnerLabel = "owner"
		w.runtime.Before = func(ctx context.Context, call string) error {
			mu.Lock()
			defer mu.Unlock()
			turns[call] = runtime.TurnOf(ctx)
			return nil
		}
		w.runtime.Queued = []runtime.Preparing{{Phase: "queued", Before: 7}, {Phase: "queued", Before: 7}, {Phase: "make"}}
		w.start()
		for id, labels := range map[string]map[string]string{
			"ann-1": {"owner": "ann", "run": "1"}, "ann-2": {"owner": "ann", "run": "2"}, "other": {"run": "1", "team": "x"}, "none": nil,
		} {
			w.create(id, &agboxv1.CreateSpec{Image: "image", Labels: labels})
		}
		w.request("ann-1", lifecycle.Delete{Reason: lifecycle.ReasonDeleteRequested})
		w.request("ann-2", lifecycle.Delete{Reason: lifecycle.ReasonCleanupTTL})
		mu.Lock()
		defer mu.Unlock()
		maps.DeleteFunc(turns, func(call string, _ runtime.Turn) bool { return call == "inventory" })
		want := map[string]runtime.Turn{
			"create ann-1": {Owner: "owner/ann"}, "create ann-2": {Owner: "owner/ann"},
			"create other": {Owner: `labels/{"run":"1","team":"x"}`}, "create none": {Owner: "labels/null"},
			"remove ann-1": {Owner: "removal/owner/ann"}, "remove ann-2": {Class: runtime.Cleanup, Owner: "owner/ann"},
		}
		if !maps.Equal(turns, want) {
			t.Errorf("turns are\n%+v, want\n%+v", turns, want)
		}
		w.expect("none", "ACCEPTED PREPARING PREPARING PREPARING READY")
		events, err := w.db.Events("none", 2, 2)
		if err != nil {
			t.Fatal(err)
		}
		queued, made := events[0].GetSandboxPhase(), events[1].GetSandboxPhase()
		if queued.GetPhase() != "queued" || queued.GetQueuedBefore() != 7 || made.GetPhase() != "make" {
			t.Errorf("the log tells %v and %v", queued, made)
		}
	})
}
