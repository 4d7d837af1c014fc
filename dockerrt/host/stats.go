package host

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// statsAtOnce bounds how many containers of a sandbox the engine is asked about at once.
const statsAtOnce = 4

// Stats implements runtime.Runtime.
// Stats implements runtime.Host.
func (h *Host) Stats(ctx context.Context, sandboxID string) (_ []*agboxv1.ContainerStats, err error) {
	defer engine.Mark(&err)
	ctx, cancel := h.engine.Read(ctx)
	defer cancel()
	containers, err := h.engine.Containers(ctx, sandboxID, false) // those that run, or are paused
	if err != nil {
		return nil, fmt.Errorf("dockerrt: %w", err)
	}
	slices.SortFunc(containers, func(a, b container.Summary) int { // the primary has no service's name
		return cmp.Compare(a.Labels[engine.LabelService], b.Labels[engine.LabelService])
	})
	stats := make([]*agboxv1.ContainerStats, len(containers))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(statsAtOnce)
	for i, c := range containers {
		group.Go(func() error {
			read, err := h.oneShot(ctx, c.ID)
			if engine.IsNotFound(err) {
				return nil // it ended meanwhile
			} else if err != nil {
				return fmt.Errorf("dockerrt: cannot read the stats of %s: %w", engine.ContainerName(c), err)
			}
			if !read.Read.IsZero() { // it ended meanwhile, too
				stats[i] = statsOf(c.Labels[engine.LabelService], read)
			}
			return nil
		})
	}
	err = group.Wait()
	return slices.DeleteFunc(stats, func(s *agboxv1.ContainerStats) bool { return s == nil }), err
}

func (h *Host) oneShot(ctx context.Context, containerID string) (stats container.StatsResponse, err error) {
	response, err := h.engine.ContainerStatsOneShot(ctx, containerID)
	if err != nil {
		return stats, err
	}
	defer response.Body.Close()
	err = json.NewDecoder(response.Body).Decode(&stats)
	return stats, err
}

func statsOf(service string, read container.StatsResponse) *agboxv1.ContainerStats {
	stats := &agboxv1.ContainerStats{
		ServiceName:      service,
		ReadAt:           timestamppb.New(read.Read),
		CpuTime:          durationpb.New(time.Duration(read.CPUStats.CPUUsage.TotalUsage)),
		MemoryBytes:      memoryInUse(read.MemoryStats),
		MemoryLimitBytes: read.MemoryStats.Limit,
		Pids:             read.PidsStats.Current,
	}
	for _, link := range read.Networks {
		stats.NetworkReceivedBytes += link.RxBytes
		stats.NetworkSentBytes += link.TxBytes
	}
	for _, entry := range read.BlkioStats.IoServiceBytesRecursive {
		switch strings.ToLower(entry.Op) { // "Read" with cgroup v1, "read" with v2
		case "read":
			stats.DiskReadBytes += entry.Value
		case "write":
			stats.DiskWrittenBytes += entry.Value
		}
	}
	return stats
}

// memoryInUse leaves out the part of the page cache that the kernel gives up first, as "docker stats" does: cgroup v1
// counts it as total_inactive_file, v2 as inactive_file.
func memoryInUse(memory container.MemoryStats) uint64 {
	inactive, v1 := memory.Stats["total_inactive_file"]
	if !v1 {
		inactive = memory.Stats["inactive_file"]
	}
	if inactive > memory.Usage {
		return memory.Usage
	}
	return memory.Usage - inactive
}
