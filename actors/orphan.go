package actors

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/actors/lifecycle"
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

// Orphans lists them by id, as the last comparison with the runtime found them.
func (s *System) Orphans() ([]Orphan, error) {
	since, err := s.db.Quarantined()
	if err != nil {
		return nil, err
	}
	list := make([]Orphan, 0, len(since))
	for _, id := range slices.Sorted(maps.Keys(since)) {
		list = append(list, Orphan{id, since[id], since[id].Add(quarantineTime)})
	}
	return list, nil
}

// orphans removes what belongs to no sandbox, each thing when it is time. It is the reconciler's, and used by one comparison
// at a time.
type orphans struct {
	system *System
	// seen is since when this process sees what it made itself.
	seen map[string]time.Time
}

// remove removes what is due and returns when it has to look again, zero for never.
func (o *orphans) remove(ctx context.Context, inventory runtime.Inventory) (next time.Time, err error) {
	s, now := o.system, o.system.now()
	left := s.leftovers(inventory)
	origins, err := s.db.Origins(left)
	if err != nil {
		return next, err
	}
	strange := slices.DeleteFunc(slices.Clone(left), func(id string) bool {
		foreign, objects := inventory.Objects[id]
		return origins[id] != persist.Unknown || objects && !foreign
	})
	since, err := s.db.Quarantine(strange, now)
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
				s.log.Warn("audit: found what the database does not know: agboxd --adopt takes it in before it is removed",
					slog.String("sandbox_id", id), slog.Time("removed_at", due))
			}
		case objects && !foreign:
			if seen[id] = o.seen[id]; seen[id].IsZero() {
				seen[id] = now
			}
			due = seen[id].Add(orphanGrace)
		}
		if !due.After(now) {
			if err := s.discardOrphan(ctx, id, objects, why); err == nil {
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
	o.seen = seen
	_, err = s.db.Quarantine(strange, now)
	return next, err
}

// leftovers are the ids of which nothing should be in the runtime, or on disk.
func (s *System) leftovers(inventory runtime.Inventory) []string {
	left := map[string]bool{}
	for id := range inventory.Objects {
		if s.orphan(id) {
			left[id] = true
		}
	}
	for _, id := range inventory.Histories {
		if _, known := s.registry.get(id); !known {
			left[id] = true
		}
	}
	return slices.SortedFunc(maps.Keys(left), strings.Compare)
}

// orphan reports whether nothing of the sandbox should be in the runtime.
func (s *System) orphan(id string) bool {
	e, known := s.registry.get(id)
	if !known {
		return true
	}
	state, err := e.load(s.db)
	return err == nil && state.Phase == lifecycle.Deleted
}

// discardOrphan removes the sandbox's objects and, unless its history is kept, what is on disk.
func (s *System) discardOrphan(ctx context.Context, id string, objects bool, why string) error {
	var err error
	if objects {
		err = s.runtime.Remove(ctx, id)
		s.log.Warn("audit: objects removed", slog.String("sandbox_id", id), slog.String("reason", why), slog.Any("error", err))
	}
	if _, known := s.registry.get(id); known || err != nil {
		return err
	}
	err = s.runtime.Forget(id)
	s.log.Warn("audit: logs removed", slog.String("sandbox_id", id), slog.String("reason", why), slog.Any("error", err))
	if err != nil {
		return err
	}
	return s.db.End(id)
}
