package limits_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestStats: what a sandbox and its service really use.
func TestStats(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	const limit = 256 << 20
	begun := time.Now().Add(-time.Second)
	id := d.Create(&agboxv1.CreateSpec{MemoryLimit: limit, RequiredServices: []*agboxv1.ServiceSpec{{
		Name: "side", Image: d.Image, Command: []string{"sleep", "300"},
		Healthcheck: &agboxv1.HealthcheckConfig{Test: []string{"CMD", "true"}, Interval: durationpb.New(time.Second)},
	}}})
	// 64 MiB that are held, half a second of work, and processes that stay.
	d.Script(id, "head -c 67108864 /dev/zero >/dev/shm/held; head -c 300000000 /dev/zero | md5sum >/dev/null\n"+
		"sleep 200 & sleep 200 &")
	stats, err := d.GetStats(t.Context(), &agboxv1.GetStatsRequest{SandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	if len(stats.Containers) != 2 || stats.Containers[0].ServiceName != "" || stats.Containers[1].ServiceName != "side" {
		t.Fatalf("stats are %v", stats)
	}
	primary, side := stats.Containers[0], stats.Containers[1]
	if primary.MemoryBytes < 60<<20 || primary.MemoryBytes > limit || primary.MemoryLimitBytes != limit {
		t.Errorf("the primary has %d bytes of %d", primary.MemoryBytes, primary.MemoryLimitBytes)
	}
	if primary.CpuTime.AsDuration() < 200*time.Millisecond || primary.Pids < 4 || !primary.ReadAt.AsTime().After(begun) {
		t.Errorf("the primary has %v", primary)
	}
	if side.MemoryBytes == 0 || side.MemoryBytes > 60<<20 || side.MemoryLimitBytes <= limit || side.Pids < 1 || side.CpuTime.AsDuration() <= 0 {
		t.Errorf("the service has %v", side)
	}
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	_, err = d.GetStats(t.Context(), &agboxv1.GetStatsRequest{SandboxId: id})
	refusal, ok := errors.AsType[*raw.Error](err)
	want := "sandbox " + id + " is STOPPED and its primary does not run: there are stats only while it does"
	if !ok || refusal.Code != codes.FailedPrecondition || refusal.Reason != "SANDBOX_NOT_READY" || refusal.Message != want || refusal.Metadata["sandbox_id"] != id {
		t.Errorf("stats of a stopped sandbox are refused with %v; want %q", err, want)
	}
	_, err = d.GetStats(t.Context(), &agboxv1.GetStatsRequest{SandboxId: "none"})
	servertest.Refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "")
}

func TestInfo(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	before, err := d.Info(t.Context(), &agboxv1.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	version, err := d.Engine.ServerVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if before.Version != "test" || before.EngineVersion != version.Version || !strings.HasPrefix(before.EngineApiVersion, "1.") ||
		before.EngineOs == "" || before.StorageDriver == "" || before.NetworkPool != "10.214.0.0/16" || before.SubnetsTotal != 4096 ||
		before.Isolated != (before.IsolationProblem == "") || len(before.Sandboxes) != 0 {
		t.Errorf("info is %v", before)
	}
	id := d.Create(&agboxv1.CreateSpec{})
	after, err := d.Info(t.Context(), &agboxv1.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// More than one where another daemon of this engine took subnets of the same pool meanwhile.
	if after.SubnetsUsed <= before.SubnetsUsed || len(after.Sandboxes) != 1 || after.Sandboxes["READY"] != 1 {
		t.Errorf("with one sandbox info is %v, before it was %v", after, before)
	}
	d.Delete(id)
}
