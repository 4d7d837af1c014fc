package server_test

import (
	"testing"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server"
)

// TestSnapshotRetention: a snapshot goes when its time is over, whether it was there before or is made meanwhile; one
// that a sandbox needs, and one of a fork, stay.
func TestSnapshotRetention(t *testing.T) {
	t.Parallel()
	fake := actorstest.New()
	before := startFleet(t, actors.Config{}, fake)
	before.create("box-1", nil)
	snapshot := func(f *fleet, id string) {
		t.Helper()
		if _, err := f.SnapshotSandbox(t.Context(), &agboxv1.SnapshotSandboxRequest{SandboxId: "box-1", SnapshotId: id}); err != nil {
			t.Fatal(err)
		}
	}
	snapshot(before, "kept-1")
	if _, err := before.ForkSandbox(t.Context(), &agboxv1.ForkSandboxRequest{SandboxId: "box-1", ForkId: "fork-1"}); err != nil {
		t.Fatal(err)
	}

	f := startServer(t, actors.Config{}, server.Config{SnapshotTTL: 1}, fake)
	if id := <-f.expired; id != "kept-1" {
		t.Errorf("the first to go is %s", id)
	}
	f.create("box-1", nil)
	for _, id := range []string{"late-1", "late-2"} {
		snapshot(f, id)
		if gone := <-f.expired; gone != id {
			t.Errorf("after %s was made %s goes", id, gone)
		}
	}
	list, err := f.ListSnapshots(t.Context(), &agboxv1.ListSnapshotsRequest{})
	if err != nil || len(list.Snapshots) != 1 || !list.Snapshots[0].Fork {
		t.Errorf("left are %v, %v", list, err)
	}
}
