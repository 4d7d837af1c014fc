package server

import (
	"context"
	"log/slog"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/meter"
)

// ReadMetrics answers without the engine, too, and then says that it is down.
func (s *Server) ReadMetrics(ctx context.Context, _ *agboxv1.ReadMetricsRequest) (*agboxv1.ReadMetricsResponse, error) {
	now := &meter.State{Sandboxes: map[string]uint32{}}
	states, execs := s.system.Counts()
	for state, n := range states {
		now.Sandboxes[stateName(state)] = n
	}
	now.Execs = execs
	classes, unpooled := s.system.Pool()
	now.Classes, now.Unpooled = uint32(len(classes)), unpooled
	for _, class := range classes {
		now.PoolSize += class.Size
		now.PoolReady += class.Ready
		now.PoolMaking += class.Making
		now.PoolHits += class.Hits
		now.PoolMisses += class.Misses
	}
	if engine, err := s.runtime.Engine(ctx); err != nil {
		s.log.Warn("metrics are read while the engine does not answer", slog.Any("error", err))
	} else {
		now.Engine = &meter.Engine{Slots: uint32(engine.Work.Slots), Running: byClass(engine.Work.Running), Waiting: byClass(engine.Work.Waiting),
			NetworksReady: engine.NetworksReady, NetworksKept: engine.NetworksKept,
			SubnetsUsed: engine.SubnetsUsed, SubnetsTotal: engine.SubnetsTotal}
	}
	text, err := s.config.Meter.Text(now)
	return &agboxv1.ReadMetricsResponse{Text: text}, err
}
