package server_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestSnapshotRefusals, without an engine.
func TestSnapshotRefusals(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	fake := actorstest.New()
	fake.Before = func(ctx context.Context, call string) error {
		if call != "create slow" {
			return nil
		}
		select {
		case <-released:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f := startFleet(t, actors.Config{}, fake)
	defer close(released)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f.create("box-1", nil)
	f.create("gone", nil)
	f.remove("gone")
	for id, spec := range map[string]*agboxv1.CreateSpec{"slow": {Image: "image"}, "lazy": {Image: "image", Lazy: true}} {
		if _, err := f.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	marked := metadata.AppendToOutgoingContext(ctx, "agbox-request-id", "mark-1")
	made, err := f.SnapshotSandbox(marked, &agboxv1.SnapshotSandboxRequest{SandboxId: "box-1", SnapshotId: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.SnapshotSandbox(marked, &agboxv1.SnapshotSandboxRequest{SandboxId: "box-1", SnapshotId: "kept"})
	if err != nil || !proto.Equal(again, made) {
		t.Errorf("the same request again: %v, %v", again, err)
	}
	_, err = f.SnapshotSandbox(marked, &agboxv1.SnapshotSandboxRequest{SandboxId: "box-1", SnapshotId: "kept", Labels: map[string]string{"a": "b"}})
	servertest.Refused(t, err, codes.AlreadyExists, "SNAPSHOT_ID_TAKEN", "", "snapshot id kept", "box-1", "choose another id")
	_, err = f.SnapshotSandbox(ctx, &agboxv1.SnapshotSandboxRequest{SandboxId: "box-1", SnapshotId: "kept"})
	servertest.Refused(t, err, codes.AlreadyExists, "SNAPSHOT_ID_TAKEN", "", "snapshot id kept", "box-1", "choose another id")
	_, err = f.SnapshotSandbox(metadata.AppendToOutgoingContext(ctx, "agbox-request-id", "mark-2"),
		&agboxv1.SnapshotSandboxRequest{SandboxId: "box-1", SnapshotId: "kept"})
	servertest.Refused(t, err, codes.AlreadyExists, "SNAPSHOT_ID_TAKEN", "", "snapshot id kept", "box-1", "choose another id")
	for id, words := range map[string]string{
		"slow": "PENDING: wait until it is READY", "lazy": "DORMANT: nothing of it was made yet", "gone": "DELETED: only one that",
	} {
		_, err := f.SnapshotSandbox(ctx, &agboxv1.SnapshotSandboxRequest{SandboxId: id})
		servertest.Refused(t, err, codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "", "cannot snapshot sandbox "+id, words)
		_, err = f.ForkSandbox(ctx, &agboxv1.ForkSandboxRequest{SandboxId: id})
		servertest.Refused(t, err, codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "", "cannot snapshot sandbox "+id, words)
	}
	_, err = f.SnapshotSandbox(ctx, &agboxv1.SnapshotSandboxRequest{SandboxId: "nothing"})
	servertest.Refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "", "nothing")
	_, err = f.ForkSandbox(ctx, &agboxv1.ForkSandboxRequest{SandboxId: "nothing"})
	servertest.Refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "", "nothing")
	_, err = f.SnapshotSandbox(ctx, &agboxv1.SnapshotSandboxRequest{SandboxId: "box-1", SnapshotId: "-"})
	servertest.Refused(t, err, codes.InvalidArgument, "INVALID_SNAPSHOT_ID", "snapshot_id", "is not a snapshot id; use 4 to 200")
	_, err = f.SnapshotSandbox(ctx, &agboxv1.SnapshotSandboxRequest{SandboxId: "box-1", Labels: map[string]string{"": "x"}})
	servertest.Refused(t, err, codes.InvalidArgument, "LABEL_INVALID", "labels", "empty key")
	_, err = f.ListSnapshots(ctx, &agboxv1.ListSnapshotsRequest{LabelSelector: map[string]string{"": "x"}})
	servertest.Refused(t, err, codes.InvalidArgument, "LABEL_INVALID", "label_selector", "empty key")
	_, err = f.ForkSandbox(ctx, &agboxv1.ForkSandboxRequest{SandboxId: "box-1", ForkId: "-"})
	servertest.Refused(t, err, codes.InvalidArgument, "INVALID_SANDBOX_ID", "fork_id")
	_, err = f.ForkSandbox(ctx, &agboxv1.ForkSandboxRequest{SandboxId: "box-1", CreateSpec: &agboxv1.CreateSpec{Image: "other"}})
	servertest.Refused(t, err, codes.InvalidArgument, "SNAPSHOT_IMAGE_CONFLICT", "create_spec.image", "other")
	_, err = f.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SnapshotId: "kept", ConfigYaml: []byte("image: other")})
	servertest.Refused(t, err, codes.InvalidArgument, "SNAPSHOT_IMAGE_CONFLICT", "create_spec.image", "other")
	_, err = f.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SnapshotId: "nothing"})
	servertest.Refused(t, err, codes.NotFound, "SNAPSHOT_NOT_FOUND", "", "there is no snapshot nothing")

	forked, err := f.ForkSandbox(marked, &agboxv1.ForkSandboxRequest{SandboxId: "box-1", ForkId: "fork-1"})
	if err != nil {
		t.Fatal(err)
	}
	repeated, err := f.ForkSandbox(marked, &agboxv1.ForkSandboxRequest{SandboxId: "box-1", ForkId: "fork-1"})
	if err != nil || !proto.Equal(repeated.Sandbox.CreatedAt, forked.Sandbox.CreatedAt) {
		t.Errorf("the same fork again: %v, %v", repeated, err)
	}
	for _, id := range []string{"fork-1", "box-1", "gone"} {
		_, err = f.ForkSandbox(ctx, &agboxv1.ForkSandboxRequest{SandboxId: "box-1", ForkId: id})
		servertest.Refused(t, err, codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS", "", id)
	}
	// What a daemon left that died before the fork was accepted is no obstacle.
	if _, err := fake.CreateSnapshot(ctx, runtime.Snapshot{ForkID: "fork-2", Snapshot: &agboxv1.Snapshot{
		SnapshotId: runtime.ForkSnapshotID("fork-2"), SandboxId: "box-1"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ForkSandbox(ctx, &agboxv1.ForkSandboxRequest{SandboxId: "box-1", ForkId: "fork-2"}); err != nil {
		t.Error(err)
	}
	_, err = f.ForkSandbox(marked, &agboxv1.ForkSandboxRequest{SandboxId: "box-1", ForkId: "gone"})
	servertest.Refused(t, err, codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS", "", "gone")
	if overlaps := fake.Overlaps(); len(overlaps) > 0 {
		t.Errorf("a snapshot was made during something else: %v", overlaps)
	}
}
