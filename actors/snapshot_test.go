package actors_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

func (w *world) fork(of, id string) (actors.View, error) {
	return w.system.Fork(w.t.Context(), of, id, "mark", func(_ actors.View, image string) (*agboxv1.CreateSpec, error) {
		return &agboxv1.CreateSpec{Image: image}, nil
	})
}

func wanted(of, id string) runtime.Snapshot {
	return runtime.Snapshot{RequestID: "mark", Snapshot: &agboxv1.Snapshot{SnapshotId: id, SandboxId: of}}
}

// during begins with do, which comes to the call that g blocks, and returns what will become of it.
func during(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	synctest.Wait()
	return done
}

// TestSnapshotIsAnOperation: its log announces it and tells its end, others wait for it, and so do those who want the same id.
func TestSnapshotIsAnOperation(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		w.create("box-2", spec)
		g := w.gate("snapshot box-1")
		snapshot := func(of, id string) func() error {
			return func() error { _, err := w.system.Snapshot(t.Context(), wanted(of, id)); return err }
		}
		first := during(snapshot("box-1", "kept"))
		again, second, elsewhere := during(snapshot("box-1", "kept")), during(snapshot("box-1", "more")), during(snapshot("box-2", "kept"))
		removal := during(func() error { return w.system.DeleteSnapshot(t.Context(), "more") })
		w.request("box-1", lifecycle.Stop{})
		w.expect("box-1", "ACCEPTED PREPARING READY SNAPSHOT_REQUESTED SNAPSHOT_REQUESTED STOP_REQUESTED")
		g.open <- nil
		if err := errors.Join(<-first, <-again); err != nil {
			t.Error(err)
		}
		if err := <-elsewhere; !errors.Is(err, runtime.ErrSnapshotIDTaken) {
			t.Errorf("a snapshot of another sandbox with the same id: %v", err)
		}
		synctest.Wait()
		w.expect("box-1", "ACCEPTED PREPARING READY SNAPSHOT_REQUESTED SNAPSHOT_REQUESTED STOP_REQUESTED SNAPSHOT_MADE STOPPED")
		g.open <- errors.New("no room")
		if err := <-second; err == nil || err.Error() != "no room" {
			t.Error(err)
		}
		if err := <-removal; !errors.Is(err, runtime.ErrSnapshotNotFound) {
			t.Errorf("a deletion of what came to nothing: %v", err)
		}
		left, leave := context.WithCancel(t.Context())
		third := during(func() error { _, err := w.system.Snapshot(left, wanted("box-1", "left")); return err })
		leave()
		if err := <-third; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		queued := during(snapshot("box-1", "late"))
		last := during(snapshot("box-1", "last"))
		w.request("box-1", lifecycle.Delete{})
		g.open <- nil
		if err := <-queued; err != nil {
			t.Error(err)
		}
		if err := <-last; !errors.Is(err, lifecycle.ErrInvalidState) {
			t.Errorf("a snapshot whose sandbox was deleted before its turn: %v", err)
		}
		synctest.Wait()
		if got := w.log("box-1"); !strings.HasSuffix(got, "STOPPED SNAPSHOT_FAILED SNAPSHOT_REQUESTED SNAPSHOT_FAILED SNAPSHOT_REQUESTED SNAPSHOT_REQUESTED "+
			"DELETE_REQUESTED SNAPSHOT_MADE SNAPSHOT_FAILED DELETED") {
			t.Errorf("the log is %s", got)
		}
		w.expect("box-2", "ACCEPTED PREPARING READY")
	})
}

// TestSnapshotInterrupted: the next daemon finds a snapshot whole or has nothing of it, and the log tells which; so with a fork,
// which comes from what its parent was, or is not there.
func TestSnapshotInterrupted(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fork  bool
		whole bool
	}{{"snapshot", false, false}, {"snapshot that is whole", false, true}, {"fork", true, false}, {"fork whose snapshot is whole", true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.create("box-1", spec)
				w.gate("snapshot box-1")
				id, do := "kept", func() error { _, err := w.system.Snapshot(t.Context(), wanted("box-1", "kept")); return err }
				if tt.fork {
					id, do = runtime.ForkSnapshotID("fork"), func() error { _, err := w.fork("box-1", "fork"); return err }
				}
				done := during(do)
				w.end()
				if err := <-done; err == nil {
					t.Fatal("it was made")
				}
				w.runtime.Before = nil
				if tt.whole { // an engine has finished what the dead daemon asked for
					if _, err := w.runtime.CreateSnapshot(t.Context(), wanted("box-1", id)); err != nil {
						t.Fatal(err)
					}
				}
				w.start()
				kept := tt.whole && !tt.fork
				want := "SNAPSHOT_FAILED"
				if kept {
					want = "SNAPSHOT_MADE"
				}
				w.expect("box-1", "ACCEPTED PREPARING READY SNAPSHOT_REQUESTED "+want)
				events, err := w.db.Events("box-1", 4, 1)
				if details := events[0].GetSnapshotDetails(); err != nil || details.SnapshotId != id || (details.ErrorCode == "SNAPSHOT_INTERRUPTED") == kept {
					t.Errorf("its end is %v, %v", details, err)
				}
				if _, err := w.runtime.Snapshot(t.Context(), id); (err == nil) != kept {
					t.Errorf("then the snapshot is found with %v", err)
				}
				if err := do(); err != nil { // the same request again
					t.Error(err)
				}
				if !tt.fork {
					return
				}
				synctest.Wait()
				w.expect("fork", "ACCEPTED PREPARING READY")
				if accepted, err := w.db.Events("fork", 0, 1); err != nil || accepted[0].GetSandboxPhase().GetForkedFrom() != "box-1" {
					t.Errorf("the fork begins with %v, %v", accepted, err)
				}
			})
		})
	}
}

// TestForkRefused: one whose id is taken while it is made leaves nothing.
func TestForkRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("box-1", spec)
		g := w.gate("snapshot box-1")
		fork := func() error { _, err := w.fork("box-1", "fork"); return err }
		first, again := during(fork), during(fork)
		plain := during(func() error { _, err := w.system.Create(t.Context(), "fork", spec, ""); return err })
		if err := <-plain; err != nil {
			t.Fatal(err)
		}
		g.open <- nil
		for _, done := range []<-chan error{first, again} {
			if err := <-done; !errors.Is(err, actors.ErrSandboxIDTaken) {
				t.Errorf("a fork whose id was taken meanwhile: %v", err)
			}
		}
		w.expect("box-1", "ACCEPTED PREPARING READY SNAPSHOT_REQUESTED SNAPSHOT_FAILED")
		if found, err := w.runtime.Snapshots(t.Context()); err != nil || len(found) != 0 {
			t.Errorf("left are %v, %v", found, err)
		}
	})
}
