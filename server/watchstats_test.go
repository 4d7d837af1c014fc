package server_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestWatchStats: sandboxes that match, that come, and that run no more.
func TestWatchStats(t *testing.T) {
	t.Parallel()
	f := startFleet(t, actors.Config{}, actorstest.New())
	for _, id := range []string{"mine-1", "mine-2", "mine-3"} {
		f.create(id, mine)
	}
	f.create("other-1", nil)
	f.stopAll(mine)
	f.await([]string{"mine-1", "mine-2", "mine-3"}, servertest.Stopped)
	if _, err := f.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: "mine-1"}); err != nil {
		t.Fatal(err)
	}
	f.await([]string{"mine-1"}, servertest.Ready)
	stream := servertest.WatchStats(t, f.Client, mine)
	servertest.StatsUntil(t, stream, []string{"mine-1"}, "mine-2", "mine-3", "other-1")
	servertest.StatsUntil(t, stream, []string{"mine-1"}, "mine-2", "mine-3", "other-1") // again
	f.create("mine-4", mine)
	f.create("other-2", nil)
	f.resumeAll(mine)
	servertest.StatsUntil(t, stream, []string{"mine-1", "mine-2", "mine-3", "mine-4"}, "other-1", "other-2")
	if _, err := f.PauseSandbox(t.Context(), &agboxv1.PauseSandboxRequest{SandboxId: "mine-2"}); err != nil {
		t.Fatal(err)
	}
	f.await([]string{"mine-2"}, agboxv1.SandboxState_SANDBOX_STATE_PAUSED)
	f.remove("mine-4")
	f.stopAll(mine, servertest.Ready)
	f.await([]string{"mine-1", "mine-3"}, servertest.Stopped)
	f.create("mine-5", mine)
	servertest.StatsUntil(t, stream, []string{"mine-5"}) // by now all that came before it is known
	servertest.StatsUntil(t, stream, []string{"mine-2", "mine-5"}, "mine-1", "mine-3", "mine-4", "other-1", "other-2")
	servertest.StatsUntil(t, stream, []string{"mine-2", "mine-5"}, "mine-1", "mine-3", "mine-4", "other-1", "other-2")
	f.stop()
	for {
		if _, err := stream.Recv(); err != nil {
			servertest.Refused(t, err, codes.Unavailable, "DAEMON_SHUTTING_DOWN", "")
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
		servertest.Refused(t, err, codes.InvalidArgument, test.reason, test.field, test.words)
		stream.Close()
	}
}
