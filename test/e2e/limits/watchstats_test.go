package limits_test

import (
	"testing"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestWatchStatsDocker: readings that grow, of a primary and its service.
func TestWatchStatsDocker(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	mine := map[string]string{"team": "a"}
	id := d.Create(&agboxv1.CreateSpec{Labels: mine, RequiredServices: []*agboxv1.ServiceSpec{servertest.Web(d, "side")}})
	stream := servertest.WatchStats(t, d.Client, mine)
	first := servertest.StatsUntil(t, stream, []string{id})
	if c := first.Containers; len(c) != 2 || c[0].ServiceName != "" || c[1].ServiceName != "side" || c[0].MemoryBytes == 0 || c[0].Pids == 0 {
		t.Fatalf("the first reading is %v", first)
	}
	d.Exec(id, "sh", "-c", "head -c 100000000 /dev/zero | md5sum")
	for before := first.Containers[0]; ; {
		now := servertest.StatsUntil(t, stream, []string{id}).Containers[0]
		if now.CpuTime.AsDuration() < before.CpuTime.AsDuration() || !now.ReadAt.AsTime().After(before.ReadAt.AsTime()) {
			t.Errorf("after %v comes %v", before, now)
		}
		if now.CpuTime.AsDuration() > first.Containers[0].CpuTime.AsDuration()+20*time.Millisecond {
			break
		}
		before = now
	}
	second := d.Create(&agboxv1.CreateSpec{Labels: mine})
	servertest.StatsUntil(t, stream, []string{second})
	d.Delete(id)
	d.Delete(second)
}
