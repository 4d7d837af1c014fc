package servertest

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
)

// WatchStats opens a stream of the stats of sandboxes with these labels, as often as may be.
func WatchStats(t *testing.T, c *raw.Client, labels map[string]string) *raw.StatsStream {
	t.Helper()
	stream, err := c.WatchStats(t.Context(), &agboxv1.WatchStatsRequest{LabelSelector: labels, Interval: durationpb.New(100 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Close)
	return stream
}

// StatsUntil reads until each of the sandboxes was told, and returns the last reading of the last one. The others must
// not be told.
func StatsUntil(t *testing.T, stream *raw.StatsStream, wanted []string, never ...string) *agboxv1.SandboxStats {
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
