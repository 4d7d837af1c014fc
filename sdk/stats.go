package sdk

import (
	"context"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Stats is what one container of a sandbox uses. Bytes are of the container's whole life, but for the memory's.
type Stats struct {
	Service              string // "" for the primary
	ReadAt               time.Time
	CPUTime              time.Duration
	MemoryBytes          uint64 // without the page cache that the kernel gives up first
	MemoryLimitBytes     uint64 // the host's memory where the spec sets none
	Pids                 uint64
	NetworkReceivedBytes uint64
	NetworkSentBytes     uint64
	DiskReadBytes        uint64
	DiskWrittenBytes     uint64
}

// Stats returns what the primary uses now, and after it each service that runs. A sandbox that does not run is refused
// with ErrSandboxNotReady.
func (c *Client) Stats(ctx context.Context, id string) ([]Stats, error) {
	resp, err := c.raw.GetStats(ctx, &agboxv1.GetStatsRequest{SandboxId: id})
	if err != nil {
		return nil, err
	}
	return statsOf(resp.GetContainers()), nil
}

func statsOf(containers []*agboxv1.ContainerStats) []Stats {
	var stats []Stats
	for _, p := range containers {
		stats = append(stats, Stats{
			Service: p.GetServiceName(), ReadAt: timeOf(p.GetReadAt()), CPUTime: p.GetCpuTime().AsDuration(),
			MemoryBytes: p.GetMemoryBytes(), MemoryLimitBytes: p.GetMemoryLimitBytes(), Pids: p.GetPids(),
			NetworkReceivedBytes: p.GetNetworkReceivedBytes(), NetworkSentBytes: p.GetNetworkSentBytes(),
			DiskReadBytes: p.GetDiskReadBytes(), DiskWrittenBytes: p.GetDiskWrittenBytes(),
		})
	}
	return stats
}

// Info is what the daemon runs on, and how much of it is in use.
type Info struct {
	Version                                                  string
	EngineVersion, EngineAPIVersion, EngineOS, StorageDriver string
	// IsolationProblem says why sandboxes are not kept from the host and from each other; "" when they are.
	IsolationProblem string
	// Sandboxes counts those in each state, the deleted ones whose history is kept included.
	Sandboxes    map[State]int
	RunningExecs int
	// NetworkPool is the range that sandbox networks come from. A sandbox with a network takes one subnet.
	NetworkPool               string
	SubnetsUsed, SubnetsTotal int
	// NetworksReady were made ahead and are no sandbox's, of NetworksKept that are to be.
	NetworksReady, NetworksKept int
	// EngineSlots is how much the engine is asked for at once; EngineRunning and EngineWaiting count what it does, and what waits,
	// by "person" (somebody waits for it), "refill" and "cleanup".
	EngineSlots                  int
	EngineRunning, EngineWaiting map[string]int
	// Pool is what is made ahead, by class; PoolMisses counts the creates that took none of it, by why.
	Pool       []PoolClass
	PoolMisses map[string]uint64
	// Orphans are sandboxes that were found though the database does not know them, with the time when each is removed unless
	// agboxd --adopt takes it in before.
	Orphans map[string]time.Time
}

// Info asks the daemon about itself and its engine.
func (c *Client) Info(ctx context.Context) (Info, error) {
	p, err := c.raw.Info(ctx, &agboxv1.InfoRequest{})
	if err != nil {
		return Info{}, err
	}
	info := Info{
		Version: p.GetVersion(), EngineVersion: p.GetEngineVersion(), EngineAPIVersion: p.GetEngineApiVersion(),
		EngineOS: p.GetEngineOs(), StorageDriver: p.GetStorageDriver(), IsolationProblem: p.GetIsolationProblem(),
		Sandboxes: map[State]int{}, Orphans: map[string]time.Time{}, RunningExecs: int(p.GetRunningExecs()),
		NetworkPool: p.GetNetworkPool(), SubnetsUsed: int(p.GetSubnetsUsed()), SubnetsTotal: int(p.GetSubnetsTotal()),
	}
	info.NetworksReady, info.NetworksKept, info.EngineSlots = int(p.GetNetworksReady()), int(p.GetNetworksKept()), int(p.GetEngineSlots())
	info.EngineRunning, info.EngineWaiting = counts(p.GetEngineRunning()), counts(p.GetEngineWaiting())
	info.Pool, info.PoolMisses = poolClasses(p.GetPool()), p.GetPoolMisses()
	for state, n := range p.GetSandboxes() {
		info.Sandboxes[State(state)] = int(n)
	}
	for _, orphan := range p.GetOrphans() {
		info.Orphans[orphan.GetSandboxId()] = orphan.GetRemovedAt().AsTime()
	}
	return info, nil
}

func counts(by map[string]uint32) map[string]int {
	all := make(map[string]int, len(by))
	for what, n := range by {
		all[what] = int(n)
	}
	return all
}

// ExecFilter selects execs; the zero value selects the newest 1,000.
type ExecFilter struct {
	SandboxID string // "": of all sandboxes
	States    []ExecState
	Limit     int // 0: 1,000; at most 10,000
}

// ListExecs returns what the filter selects, newest first; ended execs too, as long as their history is kept.
func (c *Client) ListExecs(ctx context.Context, filter ExecFilter) ([]Exec, error) {
	req := &agboxv1.ListExecsRequest{SandboxId: filter.SandboxID, Limit: uint32(max(filter.Limit, 0))}
	for _, state := range filter.States {
		req.States = append(req.States, agboxv1.ExecState(agboxv1.ExecState_value["EXEC_STATE_"+string(state)]))
	}
	resp, err := c.raw.ListExecs(ctx, req)
	if err != nil {
		return nil, err
	}
	return all(resp.GetExecs(), execOf), nil
}
