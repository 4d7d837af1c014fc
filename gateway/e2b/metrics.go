package e2b

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

const (
	// measuredEvery is between two measurements, as in E2B, and kept the number of them that a sandbox has: an hour's.
	measuredEvery = 5 * time.Second
	keptSamples   = 720
	// measureAgain is between two tries to follow a daemon that is away.
	measureAgain = time.Second
	// pruneEvery is how long what was measured of a sandbox that is gone is kept at most, while others are measured.
	pruneEvery = time.Minute
)

// sample is one measurement.
type sample struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int       `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       uint64    `json:"memUsed"`
	MemTotal      uint64    `json:"memTotal"`
	MemCache      uint64    `json:"memCache"`
	DiskUsed      uint64    `json:"diskUsed"`
	DiskTotal     uint64    `json:"diskTotal"`
}

// measured are the measurements of all sandboxes since the gateway's start. They are the only thing that a gateway forgets.
type measured struct {
	mu   sync.Mutex
	last map[string]sdk.Stats
	of   map[string][]sample
}

func newMeasured() *measured {
	return &measured{last: map[string]sdk.Stats{}, of: map[string][]sample{}}
}

// follow measures until ctx ends, whatever becomes of the daemon meanwhile.
func (m *measured) follow(ctx context.Context, client *sdk.Client, log *slog.Logger) {
	labels, pruned := map[string]string{LabelKind: KindSandbox}, time.Now()
	for ctx.Err() == nil {
		for stats, err := range client.WatchStats(ctx, labels, measuredEvery) {
			if err != nil {
				log.Debug("the daemon's measurements ended", "error", err)
				break
			}
			m.add(stats)
			if time.Since(pruned) > pruneEvery {
				m.prune(ctx, client)
				pruned = time.Now()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(measureAgain):
		}
	}
}

// prune forgets sandboxes that are gone.
func (m *measured) prune(ctx context.Context, client *sdk.Client) {
	list, err := client.ListSandboxes(ctx, sdk.Filter{Labels: map[string]string{LabelKind: KindSandbox}})
	if err != nil {
		return
	}
	there := map[string]bool{}
	for _, s := range list {
		there[s.ID] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.of {
		if !there[id] {
			delete(m.of, id)
			delete(m.last, id)
		}
	}
}

func (m *measured) add(stats sdk.SandboxStats) {
	if len(stats.Containers) == 0 {
		return
	}
	now := stats.Containers[0]
	if now.ReadAt.IsZero() {
		now.ReadAt = time.Now()
	}
	s := sample{
		Timestamp: now.ReadAt, TimestampUnix: now.ReadAt.Unix(),
		MemUsed: now.MemoryBytes, MemTotal: now.MemoryLimitBytes,
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if before, found := m.last[stats.SandboxID]; found {
		if elapsed := now.ReadAt.Sub(before.ReadAt); elapsed > 0 && now.CPUTime >= before.CPUTime {
			s.CPUUsedPct = 100 * float64(now.CPUTime-before.CPUTime) / float64(elapsed)
		}
	}
	m.last[stats.SandboxID] = now
	samples := append(m.of[stats.SandboxID], s)
	m.of[stats.SandboxID] = samples[max(0, len(samples)-keptSamples):]
}

// between are a sandbox's samples from one second to another, oldest first.
func (m *measured) between(id string, start, end int64) []sample {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := []sample{}
	for _, s := range m.of[id] {
		if s.TimestampUnix >= start && s.TimestampUnix <= end {
			found = append(found, s)
		}
	}
	return found
}

const farAway = int64(1) << 40

func (c *call) metrics() (int, any, error) {
	start, err := c.number("start", 0, 0, farAway)
	if err != nil {
		return 0, nil, err
	}
	end, err := c.number("end", farAway, 0, farAway)
	if err != nil {
		return 0, nil, err
	}
	if start > end {
		return 0, nil, refused(http.StatusBadRequest, "start is %d, which is after end, %d", start, end)
	}
	b, err := c.box()
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, c.samples(b, start, end), nil
}

func (c *call) samples(b box, start, end int64) []sample {
	samples := c.measured.between(b.ID, start, end)
	cpus := b.listed().CPUCount
	for i := range samples {
		samples[i].CPUCount = cpus
	}
	return samples
}

// metricsOfMany is the newest measurement of each sandbox that is named and has one.
func metricsOfMany(c *call) (int, any, error) {
	named := strings.Split(c.URL.Query().Get("sandbox_ids"), ",")
	if len(named) > maxPage {
		return 0, nil, refused(http.StatusBadRequest, "sandbox_ids names %d sandboxes: name at most %d", len(named), maxPage)
	}
	newest := map[string]sample{}
	for _, id := range named {
		s, err := c.client.GetSandbox(c.Context(), id)
		if err != nil {
			continue // it is not there, or not theirs
		}
		b, found := boxOf(s)
		if samples := c.samples(b, 0, farAway); found && len(samples) > 0 {
			newest[id] = samples[len(samples)-1]
		}
	}
	return http.StatusOK, map[string]any{"sandboxes": newest}, nil
}
