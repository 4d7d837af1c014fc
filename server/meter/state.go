package meter

import "github.com/prometheus/client_golang/prometheus"

// State is what is the case at one moment.
type State struct {
	// Sandboxes are counted by state.
	Sandboxes map[string]uint32
	Execs     uint32
	// Engine is nil where it does not answer.
	Engine *Engine
	// What is made ahead, of all classes.
	Classes, PoolSize, PoolReady, PoolMaking uint32
	// PoolHits and PoolMisses are of the classes that are kept now.
	PoolHits, PoolMisses uint64
	// Unpooled are creates that found nothing to take, by why.
	Unpooled map[string]uint64
}

// Engine is what is asked of the engine, and what was made there ahead.
type Engine struct {
	Slots                       uint32
	Running, Waiting            map[string]uint32 // by for whom
	NetworksReady, NetworksKept uint32
	SubnetsUsed, SubnetsTotal   uint32
}

// Describe sends nothing: what there is depends on the state.
func (s *State) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *State) Collect(to chan<- prometheus.Metric) {
	gauge := func(name, help string, value uint32) {
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, float64(value))
	}
	gauges(to, "agbox_sandboxes", "Sandboxes, by state.", "state", s.Sandboxes)
	gauge("agbox_execs_running", "Commands that run.", s.Execs)
	gauge("agbox_pool_classes", "Classes of sandboxes that are made ahead.", s.Classes)
	gauge("agbox_pool_size", "How many are to be kept ahead.", s.PoolSize)
	gauge("agbox_pool_ready", "How many are ready to be taken.", s.PoolReady)
	gauge("agbox_pool_making", "How many are being made.", s.PoolMaking)
	// The counts of a class go with it, so these are no counters.
	gauge64(to, "agbox_pool_hits", "Creates that took one, of the classes that are kept now.", s.PoolHits)
	gauge64(to, "agbox_pool_misses", "Creates that found none ready, of the classes that are kept now.", s.PoolMisses)
	for why, n := range s.Unpooled {
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc("agbox_pool_unpooled_total", "Creates that found nothing to take, by why.",
			[]string{"why"}, nil), prometheus.CounterValue, float64(n), why)
	}
	if s.Engine == nil {
		gauge("agbox_engine_up", "Whether the engine answers.", 0)
		return
	}
	gauge("agbox_engine_up", "Whether the engine answers.", 1)
	gauge("agbox_engine_slots", "How much is asked of the engine at once.", s.Engine.Slots)
	gauges(to, "agbox_engine_running", "What the engine works at, by for whom.", "for", s.Engine.Running)
	gauges(to, "agbox_engine_waiting", "What waits for the engine, by for whom.", "for", s.Engine.Waiting)
	gauge("agbox_networks_ready", "Networks that were made ahead.", s.Engine.NetworksReady)
	gauge("agbox_networks_kept", "How many networks are to be kept ahead.", s.Engine.NetworksKept)
	gauge("agbox_subnets_used", "Subnets in use.", s.Engine.SubnetsUsed)
	gauge("agbox_subnets", "Subnets that there are.", s.Engine.SubnetsTotal)
}

func gauges(to chan<- prometheus.Metric, name, help, label string, values map[string]uint32) {
	for of, n := range values {
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, []string{label}, nil), prometheus.GaugeValue, float64(n), of)
	}
}

func gauge64(to chan<- prometheus.Metric, name, help string, value uint64) {
	to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, float64(value))
}
