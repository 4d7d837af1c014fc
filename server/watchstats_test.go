package server_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/servertest"
)

// watchStats opens a stream of the stats of mine, as often as may be.
func watchStats(t *testing.T, c *raw.Client) *raw.StatsStream {
	t.Helper()
	stream, err := c.WatchStats(t.Context(), &agboxv1.WatchStatsRequest{LabelSelector: mine, Interval: durationpb.New(100 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Close)
	return stream
}

// readUntil reads until each of the sandboxes was told, and returns the last reading of the last one. The others must
// not be told.
func readUntil(t *testing.T, stream *raw.StatsStream, wanted []string, never ...string) *agboxv1.SandboxStats {
	t.Helper()
	left, bad := map[string]bool{}, map[string]bool{}
	for _, id := range wanted {
		left[id] = true
	}
	for _, id := range never {
		bad[id] = true
	}
	for {
		stats, err := stream.Recv()
		if err != nil {
			t.Fatalf("with %v left: %v", left, err)
		}
		if bad[stats.SandboxId] {
			t.Errorf("a reading comes of %s", stats.SandboxId)
		}
		if delete(left, stats.SandboxId); len(left) == 0 {
			return stats
		}
	}
}

// TestWatchStats: sandboxes that match, that come, and that run no more.
func TestWatchStats(t *testing.T) {
	t.Parallel()
	f := startFleet(t, actors.Config{}, actorstest.New())
	for _, id := range []string{"mine-1", "mine-2", "mine-3"} {
		f.create(id, mine)
	}
	f.create("other-1", nil)
	f.stopAll(mine)
	f.await([]string{"mine-1", "mine-2", "mine-3"}, stopped)
	if _, err := f.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: "mine-1"}); err != nil {
		t.Fatal(err)
	}
	f.await([]string{"mine-1"}, ready)
	stream := watchStats(t, f.Client)
	readUntil(t, stream, []string{"mine-1"}, "mine-2", "mine-3", "other-1")
	readUntil(t, stream, []string{"mine-1"}, "mine-2", "mine-3", "other-1") // again
	f.create("mine-4", mine)
	f.create("other-2", nil)
	f.resumeAll(mine)
	readUntil(t, stream, []string{"mine-1", "mine-2", "mine-3", "mine-4"}, "other-1", "other-2")
	if _, err := f.PauseSandbox(t.Context(), &agboxv1.PauseSandboxRequest{SandboxId: "mine-2"}); err != nil {
		t.Fatal(err)
	}
	f.await([]string{"mine-2"}, agboxv1.SandboxState_SANDBOX_STATE_PAUSED)
	f.remove("mine-4")
	f.stopAll(mine, ready)
	f.await([]string{"mine-1", "mine-3"}, stopped)
	f.create("mine-5", mine)
	readUntil(t, stream, []string{"mine-5"}) // by now all that came before it is known
	readUntil(t, stream, []string{"mine-2", "mine-5"}, "mine-1", "mine-3", "mine-4", "other-1", "other-2")
	readUntil(t, stream, []string{"mine-2", "mine-5"}, "mine-1", "mine-3", "mine-4", "other-1", "other-2")
	f.stop()
	for {
		if _, err := stream.Recv(); err != nil {
			refused(t, err, codes.Unavailable, "DAEMON_SHUTTING_DOWN", "")
			return
		}
	}
}

func TestWatchStatsRefusals(t *testing.T) {
	t.Parallel()
	f := startFleet(t, actors.Config{}, actorstest.New())
	for _, test := range []struct {
		request       *agboxv1.WatchStatsRequest
		reason, field string
		words         string
	}{
		{&agboxv1.WatchStatsRequest{LabelSelector: map[string]string{"": "a"}}, "LABEL_INVALID", "label_selector", "empty key"},
		{&agboxv1.WatchStatsRequest{Interval: durationpb.New(-1)}, "DURATION_NEGATIVE", "interval", "-1ns is negative"},
		{&agboxv1.WatchStatsRequest{Interval: durationpb.New(0)}, "DURATION_TOO_SHORT", "interval", "0s is too short to read the sandboxes in; use at least 100ms"},
		{&agboxv1.WatchStatsRequest{Interval: durationpb.New(99 * time.Millisecond)}, "DURATION_TOO_SHORT", "interval", "use at least 100ms"},
	} {
		stream, err := f.WatchStats(t.Context(), test.request)
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		refused(t, err, codes.InvalidArgument, test.reason, test.field, test.words)
		stream.Close()
	}
}

// TestWatchStatsDocker: readings that grow, of a primary and its service.
func TestWatchStatsDocker(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{Labels: mine, RequiredServices: []*agboxv1.ServiceSpec{web(d, "side")}})
	stream := watchStats(t, d.Client)
	first := readUntil(t, stream, []string{id})
	if c := first.Containers; len(c) != 2 || c[0].ServiceName != "" || c[1].ServiceName != "side" || c[0].MemoryBytes == 0 || c[0].Pids == 0 {
		t.Fatalf("the first reading is %v", first)
	}
	d.Exec(id, "sh", "-c", "head -c 100000000 /dev/zero | md5sum")
	for before := first.Containers[0]; ; {
		now := readUntil(t, stream, []string{id}).Containers[0]
		if now.CpuTime.AsDuration() < before.CpuTime.AsDuration() || !now.ReadAt.AsTime().After(before.ReadAt.AsTime()) {
			t.Errorf("after %v comes %v", before, now)
		}
		if now.CpuTime.AsDuration() > first.Containers[0].CpuTime.AsDuration()+20*time.Millisecond {
			break
		}
		before = now
	}
	second := d.Create(&agboxv1.CreateSpec{Labels: mine})
	readUntil(t, stream, []string{second})
	d.Delete(id)
	d.Delete(second)
}
