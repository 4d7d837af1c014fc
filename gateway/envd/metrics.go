package envd

import (
	"net/http"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// between is how long the use of CPUs is measured for.
const between = 100 * time.Millisecond

// metrics tells what the sandbox uses now.
func (h *Handler) metrics(w http.ResponseWriter, r *http.Request) {
	b := boxOf(r.Context())
	var samples [2]*agboxv1.ContainerStats
	for i := range samples {
		stats, err := b.client.GetStats(r.Context(), &agboxv1.GetStatsRequest{SandboxId: b.id})
		if err != nil {
			problemOf(b, err).write(w)
			return
		}
		if len(stats.GetContainers()) == 0 {
			absent(b.id, "The sandbox was not found").write(w)
			return
		}
		samples[i] = stats.GetContainers()[0]
		if i == 0 {
			select {
			case <-time.After(between):
			case <-r.Context().Done():
				return
			}
		}
	}
	now := samples[1]
	used := 0.0
	if took := now.GetReadAt().AsTime().Sub(samples[0].GetReadAt().AsTime()); took > 0 {
		used = 100 * float64(now.GetCpuTime().AsDuration()-samples[0].GetCpuTime().AsDuration()) / float64(took)
	}
	answer(w, http.StatusOK, map[string]any{
		"ts": time.Now().Unix(), "cpu_used_pct": used, "mem_used": now.GetMemoryBytes(), "mem_total": now.GetMemoryLimitBytes(),
		"mem_used_mib": now.GetMemoryBytes() >> 20, "mem_total_mib": now.GetMemoryLimitBytes() >> 20,
	})
}
