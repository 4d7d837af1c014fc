//go:build long

package snapshots_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/chaos"
	"github.com/agbox-dev/agbox/test/chaos/proxy"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestLongKilledInASnapshot: a daemon that dies in the middle of one leaves it whole or not at all, once the next has looked
// around; a fork that was not accepted leaves nothing.
func TestLongKilledInASnapshot(t *testing.T) {
	t.Parallel()
	engine := dockertest.Engine(t)
	defer engine.Close()
	binary, err := chaos.Build()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	between, err := proxy.New(strings.TrimPrefix(engine.DaemonHost(), "unix://"), filepath.Join(dir, "p"), 1)
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := chaos.NewDaemon(binary, dir, between.Host())
	if err != nil {
		t.Fatal(err)
	}
	c, err := raw.Dial(raw.WithSocket(daemon.Socket()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		daemon.End()
		if err := errors.Join(c.Close(), between.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	start := func() {
		t.Helper()
		if err := daemon.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	start()
	id := "killed-" + strings.TrimPrefix(filepath.Base(dir), "agbox")
	if _, err := c.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{
		Image: dockertest.TinyImage(t, engine, dockertest.Busybox)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WaitSandbox(ctx, &agboxv1.WaitSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}

	fork := func(n int) error {
		_, err := c.ForkSandbox(ctx, &agboxv1.ForkSandboxRequest{SandboxId: id, ForkId: fmt.Sprintf("%s-fork-%d", id, n)})
		return err
	}
	snapshot := func(n int) error {
		_, err := c.SnapshotSandbox(ctx, &agboxv1.SnapshotSandboxRequest{SandboxId: id, SnapshotId: fmt.Sprintf("%s-snapshot-%d", id, n)})
		return err
	}
	for n, tt := range []struct {
		calls string
		phase proxy.Phase
		do    func(n int) error
		whole bool
	}{
		{"^/commit", proxy.Before, snapshot, false},
		{"^/commit", proxy.After, snapshot, false},
		{"^/images/load", proxy.After, snapshot, true},
		{"^/commit", proxy.After, fork, false},
		{"^/images/load", proxy.After, fork, false},
	} {
		if err := between.Use(proxy.Rule{Path: regexp.MustCompile(tt.calls), Phase: tt.phase, Nth: 1, Fault: proxy.Run(daemon.Kill)}); err != nil {
			t.Fatal(err)
		}
		if err := tt.do(n); err == nil {
			t.Fatalf("%s %v did not kill the daemon", tt.calls, tt.phase)
		}
		if err := between.Use(); err != nil {
			t.Fatal(err)
		}
		<-daemon.Ended() // the call fails a moment before
		start()
		want := 0
		if tt.whole {
			want = 1
		}
		awaitImages(ctx, t, engine, id, want)
		if end := snapshotEnd(ctx, t, c, id, fmt.Sprintf("-%d", n)); (end.ErrorCode == "") != tt.whole || !tt.whole && end.ErrorCode != "SNAPSHOT_INTERRUPTED" {
			t.Errorf("%s %v: the log tells of its end %v", tt.calls, tt.phase, end)
		}
		list, err := c.ListSnapshots(ctx, &agboxv1.ListSnapshotsRequest{})
		if err != nil || len(list.Snapshots) != want {
			t.Errorf("%s %v: then there are %v, %v", tt.calls, tt.phase, list, err)
			continue
		}
		for _, s := range list.Snapshots {
			created, err := c.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SnapshotId: s.SnapshotId, SandboxId: id + "-copy"})
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.WaitSandbox(ctx, &agboxv1.WaitSandboxRequest{SandboxId: created.Sandbox.SandboxId})
			if err != nil || got.Sandbox.State != servertest.Ready {
				t.Errorf("what is made from the snapshot is %v, %v", got, err)
			}
			deleteAndWait(ctx, t, c, created.Sandbox.SandboxId)
			if _, err := c.DeleteSnapshot(ctx, &agboxv1.DeleteSnapshotRequest{SnapshotId: s.SnapshotId}); err != nil {
				t.Error(err)
			}
		}
	}
	// The same id again, after all that.
	if err := fork(4); err != nil {
		t.Error(err)
	}
	deleteAndWait(ctx, t, c, id+"-fork-4")
	deleteAndWait(ctx, t, c, id)
	awaitImages(ctx, t, engine, id, 0)
}

// snapshotEnd returns what the sandbox's log tells of the end of the snapshot, or fork, whose id ends so.
func snapshotEnd(ctx context.Context, t *testing.T, c *raw.Client, id, suffix string) *agboxv1.SnapshotEventDetails {
	t.Helper()
	stream, err := c.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for {
		event, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		details := event.GetSnapshotDetails()
		ended := details != nil && event.EventType != agboxv1.EventType_SANDBOX_SNAPSHOT_REQUESTED
		if ended && strings.HasSuffix(cmp.Or(details.ForkId, details.SnapshotId), suffix) {
			return details
		}
	}
}

func deleteAndWait(ctx context.Context, t *testing.T, c *raw.Client, id string) {
	t.Helper()
	_, err := c.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id})
	if err == nil {
		_, err = c.WaitSandbox(ctx, &agboxv1.WaitSandboxRequest{SandboxId: id, States: []agboxv1.SandboxState{servertest.Deleted}})
	}
	if err != nil {
		t.Error(err)
	}
}

// awaitImages returns once the engine has as many images of the sandbox's snapshots.
func awaitImages(ctx context.Context, t *testing.T, engine *client.Client, id string, want int) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Events from a moment ago on, so that none falls between the look and the stream.
	messages, errs := engine.Events(ctx, events.ListOptions{Since: time.Now().Add(-time.Second).Format(time.RFC3339Nano),
		Filters: filters.NewArgs(filters.Arg("type", string(events.ImageEventType)))})
	for {
		images := labelledImages(t, engine, "io.github.1996fanrui.agents-sandbox.snapshot-sandbox-id", id)
		if len(images) == want {
			return
		}
		select {
		case <-messages:
		case err := <-errs:
			t.Fatalf("there are %v, want %d: %v", images, want, err)
		}
	}
}
