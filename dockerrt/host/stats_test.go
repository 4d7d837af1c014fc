package host

import (
	"encoding/json"
	"testing"

	"github.com/docker/docker/api/types/container"
)

// TestStatsOf: both kinds of cgroup, as an engine writes them; a host has only one of them.
func TestStatsOf(t *testing.T) {
	const shared = `"read":"2026-01-02T03:04:05Z","pids_stats":{"current":7},"cpu_stats":{"cpu_usage":{"total_usage":1500000000}},
		"networks":{"eth0":{"rx_bytes":10,"tx_bytes":1},"eth1":{"rx_bytes":20,"tx_bytes":2}},`
	for name, document := range map[string]string{
		"cgroup v1": `{` + shared + `"memory_stats":{"usage":1000,"limit":5000,"stats":{"total_inactive_file":300,"inactive_file":1}},
			"blkio_stats":{"io_service_bytes_recursive":[{"op":"Read","value":4},{"op":"Write","value":5},{"op":"Sync","value":9},{"op":"Total","value":9},{"op":"Read","value":1}]}}`,
		"cgroup v2": `{` + shared + `"memory_stats":{"usage":1000,"limit":5000,"stats":{"inactive_file":300,"file":900}},
			"blkio_stats":{"io_service_bytes_recursive":[{"op":"read","value":5},{"op":"write","value":5}]}}`,
	} {
		var read container.StatsResponse
		if err := json.Unmarshal([]byte(document), &read); err != nil {
			t.Fatal(err)
		}
		got := statsOf("db", read)
		if got.ServiceName != "db" || got.ReadAt.AsTime().Year() != 2026 || got.Pids != 7 || got.CpuTime.AsDuration().Seconds() != 1.5 ||
			got.MemoryBytes != 700 || got.MemoryLimitBytes != 5000 || got.NetworkReceivedBytes != 30 || got.NetworkSentBytes != 3 ||
			got.DiskReadBytes != 5 || got.DiskWrittenBytes != 5 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestMemoryInUse(t *testing.T) {
	for _, c := range []struct {
		usage uint64
		stats map[string]uint64
		want  uint64
	}{
		{0, nil, 0},
		{10, nil, 10},
		{10, map[string]uint64{"inactive_file": 11}, 10},
		{10, map[string]uint64{"total_inactive_file": 0, "inactive_file": 4}, 10},
	} {
		if got := memoryInUse(container.MemoryStats{Usage: c.usage, Stats: c.stats}); got != c.want {
			t.Errorf("%d with %v is %d, want %d", c.usage, c.stats, got, c.want)
		}
	}
}
