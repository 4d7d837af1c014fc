// Package orphan finds what carries the daemon's mark and belongs to no sandbox, and removes each thing when it is time.
package orphan

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/persist"
)

const (
	// orphanGrace is how long an object that no log knows is left alone when this very process made it: longer than
	// any create takes from its first object to its end.
	orphanGrace = 5 * time.Minute
	// quarantineTime is how long something is left alone that carries this daemon's mark though its database never knew it: it
	// may be the database that is wrong, and a day is enough for a person to see that.
	quarantineTime = 24 * time.Hour
)

// Orphan is something of a sandbox in the runtime, or its logs, though no such sandbox was ever accepted.
type Orphan struct {
	SandboxID string
	// FoundAt is when it was first seen, RemovedAt when it is removed unless somebody has it taken in before.
	FoundAt, RemovedAt time.Time
}

// Runtime removes what is left of a sandbox.
type Runtime interface {
	Remove(ctx context.Context, sandboxID string) error
	Forget(sandboxID string) error
}

// Sweep is used by one comparison at a time.
type Sweep struct {
	DB      *persist.DB
	Runtime Runtime
	// Known reports whether there is such a sandbox, and whether nothing of it should be in the runtime.
	Known func(sandboxID string) (known, deleted bool)
	Now   func() time.Time
	Log   *slog.Logger
	// seen is since when this process sees what it made itself.
	seen map[string]time.Time
}

// List lists them by id, as the last comparison with the runtime found them. Any goroutine may call it.
func List(db *persist.DB) ([]Orphan, error) {
	since, err := db.Quarantined()
	if err != nil {
		return nil, err
	}
	list := make([]Orphan, 0, len(since))
	for _, id := range slices.Sorted(maps.Keys(since)) {
		list = append(list, Orphan{id, since[id], since[id].Add(quarantineTime)})
	}
	return list, nil
}

// Remove removes what is due and returns when it has to look again, zero for never.
func (s *Sweep) Remove(ctx context.Context, inventory runtime.Inventory) (next time.Time, err error) {
	now := s.Now()
	left := s.leftovers(inventory)
	origins, err := s.DB.Origins(left)
	if err != nil {
		return next, err
	}
	strange := slices.DeleteFunc(slices.Clone(left), func(id string) bool {
		foreign, objects := inventory.Objects[id]
		return origins[id] != persist.Unknown || objects && !foreign
	})
	since, err := s.DB.Quarantine(strange, now)
	if err != nil {
		return next, err
	}
	seen := map[string]time.Time{}
	for _, id := range left {
		foreign, objects := inventory.Objects[id]
		first, quarantined := since[id]
		due, why := now, "its log says that nothing is left of it"
		switch {
		case quarantined:
			due, why = first.Add(quarantineTime), "no log has known it for a day"
			if first.Equal(now) {
				s.Log.Warn("audit: found what the database does not know: agboxd --adopt takes it in before it is removed",
					slog.String("sandbox_id", id), slog.Time("removed_at", due))
			}
		case objects && !foreign:
			if seen[id] = s.seen[id]; seen[id].IsZero() {
				seen[id] = now
			}
			due = seen[id].Add(orphanGrace)
		}
		if !due.After(now) {
			if err := s.Discard(ctx, id, objects, why); err == nil {
				delete(seen, id)
				strange = slices.DeleteFunc(strange, func(other string) bool { return other == id })
				continue
			}
			due = now.Add(orphanGrace)
		}
		if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	s.seen = seen
	_, err = s.DB.Quarantine(strange, now)
	return next, err
}

// leftovers are the ids of which nothing should be in the runtime, or on disk.
func (s *Sweep) leftovers(inventory runtime.Inventory) []string {
	left := map[string]bool{}
	for id := range inventory.Objects {
		if known, deleted := s.Known(id); !known || deleted {
			left[id] = true
		}
	}
	for _, id := range inventory.Histories {
		if known, _ := s.Known(id); !known {
			left[id] = true
		}
	}
	return slices.SortedFunc(maps.Keys(left), strings.Compare)
}

// Strange are the ids of sandboxes that were never accepted here, in order.
func (s *Sweep) Strange(inventory runtime.Inventory) ([]string, error) {
	left := s.leftovers(inventory)
	origins, err := s.DB.Origins(left)
	return slices.DeleteFunc(left, func(id string) bool { return origins[id] != persist.Unknown }), err
}

// Discard removes the sandbox's objects and, unless its history is kept, what is on disk.
func (s *Sweep) Discard(ctx context.Context, id string, objects bool, why string) error {
	var err error
	if objects {
		err = s.Runtime.Remove(ctx, id)
		s.Log.Warn("audit: objects removed", slog.String("sandbox_id", id), slog.String("reason", why), slog.Any("error", err))
	}
	if known, _ := s.Known(id); known || err != nil {
		return err
	}
	err = s.Runtime.Forget(id)
	s.Log.Warn("audit: logs removed", slog.String("sandbox_id", id), slog.String("reason", why), slog.Any("error", err))
	if err != nil {
		return err
	}
	return s.DB.End(id)
}
