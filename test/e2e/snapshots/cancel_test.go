package snapshots_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestSnapshotGivenUp: who leaves while the engine reads leaves no snapshot, and the sandbox goes on before the engine has ended.
func TestSnapshotGivenUp(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	servertest.Sh(t, d, id, "dd if=/dev/urandom of=/tmp/large bs=1M count=200 2>/dev/null")
	watching, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	happened, ended := d.Engine.Events(watching, events.ListOptions{Filters: filters.NewArgs(
		filters.Arg("event", "pause"), filters.Arg("event", "unpause"), filters.Arg("event", "commit"), filters.Arg("event", "delete"))})
	await := func(match func(events.Message) bool) events.Message {
		t.Helper()
		for {
			select {
			case event := <-happened:
				if match(event) {
					return event
				}
			case err := <-ended:
				t.Fatal(err)
			}
		}
	}
	next := func() events.Message {
		t.Helper()
		return await(func(event events.Message) bool { return event.Actor.Attributes["name"] == "agbox-primary-"+id })
	}

	ctx, leave := context.WithCancel(t.Context())
	progress, err := d.CaptureSandbox(ctx, &agboxv1.SnapshotSandboxRequest{SandboxId: id, SnapshotId: "given-up-" + id})
	if err != nil {
		t.Fatal(err)
	}
	defer progress.Close()
	for stage := ""; stage != "reading"; {
		message, err := progress.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if stage = message.Stage; stage == "reading" && message.SizeBytes < 200<<20 {
			t.Errorf("there are %d bytes to read", message.SizeBytes)
		}
	}
	if got := next().Action; got != "pause" {
		t.Fatalf("first is %s", got)
	}
	leave()
	if got := next().Action; got != "unpause" {
		t.Errorf("the sandbox stands still until there is a %s", got)
	}
	servertest.Works(t, d, id)
	made := next()
	for made.Action != "commit" {
		made = next()
	}
	await(func(event events.Message) bool {
		return event.Type == events.ImageEventType && event.Action == events.ActionDelete && event.Actor.ID == made.Actor.Attributes["imageID"]
	})
	images, err := d.Engine.ImageList(t.Context(), image.ListOptions{Filters: filters.NewArgs(filters.Arg("label", "io.github.1996fanrui.agents-sandbox.snapshot-sandbox-id="+id))})
	if err != nil || len(images) > 0 {
		t.Errorf("there are %v, %v", images, err)
	}
	list, err := d.ListSnapshots(t.Context(), &agboxv1.ListSnapshotsRequest{SandboxId: id})
	if err != nil || len(list.Snapshots) > 0 {
		t.Errorf("there are %v, %v", list, err)
	}

	// The id is free, and whoever stays sees it through.
	progress, err = d.CaptureSandbox(t.Context(), &agboxv1.SnapshotSandboxRequest{SandboxId: id, SnapshotId: "given-up-" + id})
	if err != nil {
		t.Fatal(err)
	}
	defer progress.Close()
	var stages []string
	for {
		message, err := progress.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if stages = append(stages, message.Stage); message.Snapshot != nil {
			break
		}
	}
	if got := strings.Join(stages, " "); got != "waiting measuring reading keeping made" {
		t.Errorf("the stages are %s", got)
	}
	again, err := d.CaptureSandbox(t.Context(), &agboxv1.SnapshotSandboxRequest{SandboxId: id, SnapshotId: "given-up-" + id})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	_, err = again.Recv()
	servertest.Refused(t, err, codes.AlreadyExists, "SNAPSHOT_ID_TAKEN", "", "choose another id")
	if _, err := d.DeleteSnapshot(t.Context(), &agboxv1.DeleteSnapshotRequest{SnapshotId: "given-up-" + id}); err != nil {
		t.Error(err)
	}
}
