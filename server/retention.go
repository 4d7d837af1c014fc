package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/agbox-dev/agbox/actors/runtime"
)

// retryRetention is when a snapshot that is due and cannot go, as one that a sandbox needs, is tried again.
const retryRetention = time.Hour

// retain deletes snapshots that are older than the configuration allows, until ctx ends. Those of forks go with the forks.
func (s *Server) retain(ctx context.Context) {
	for {
		timer := time.NewTimer(s.expire(ctx))
		select {
		case <-timer.C:
		case <-s.snapshotMade:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// expire deletes what is due, and returns when to look again unless a snapshot is made before.
func (s *Server) expire(ctx context.Context) time.Duration {
	next := retryRetention
	found, err := s.runtime.Snapshots(ctx)
	if err != nil {
		s.log.Warn("snapshots that are due cannot be listed", slog.Any("error", err))
		return next
	}
	for _, snapshot := range found {
		if snapshot.ForkID != "" {
			continue
		}
		if left := time.Until(snapshot.CreatedAt.AsTime().Add(s.config.SnapshotTTL)); left > 0 {
			next = min(next, left)
			continue
		}
		err := s.system.DeleteSnapshot(ctx, snapshot.SnapshotId)
		switch {
		case err == nil:
			s.log.Info("snapshot removed", slog.String("snapshot_id", snapshot.SnapshotId), slog.String("reason", "snapshot_ttl"))
		case !errors.Is(err, runtime.ErrSnapshotInUse) && !errors.Is(err, runtime.ErrSnapshotNotFound) && ctx.Err() == nil:
			s.log.Warn("snapshot that is due cannot be removed", slog.String("snapshot_id", snapshot.SnapshotId), slog.Any("error", err))
		}
	}
	return next
}
