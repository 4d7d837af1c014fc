package actors

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Snapshot makes the snapshot that want says of its sandbox, and returns it once it is there and the log tells so. What else is
// asked of the sandbox meanwhile is accepted and waits. Where ctx ends before, or it fails, there is none. The same request again,
// with its RequestID, returns the same snapshot. It fails with runtime.ErrSnapshotIDTaken.
func (s *System) Snapshot(ctx context.Context, want runtime.Snapshot) (runtime.Snapshot, error) {
	for {
		earlier, err := s.runtime.Snapshot(ctx, want.SnapshotId)
		switch {
		case err == nil && want.RequestID != "" && earlier.RequestID == want.RequestID && earlier.SandboxId == want.SandboxId && maps.Equal(earlier.Labels, want.Labels):
			// The log tells its end, too.
			return earlier, s.awaitSnapshot(ctx, want.SnapshotId)
		case err == nil:
			return earlier, &lifecycle.Refusal{Kind: runtime.ErrSnapshotIDTaken, Message: fmt.Sprintf(
				"snapshot id %s is that of a snapshot of sandbox %s: choose another id, or delete that one", want.SnapshotId, earlier.SandboxId)}
		case !errors.Is(err, runtime.ErrSnapshotNotFound):
			return earlier, err
		}
		m, err := s.capture(ctx, want, nil)
		if pending, err := s.otherSnapshot(ctx, want.SnapshotId, err); err != nil {
			return want, err
		} else if !pending {
			return m.made, nil
		}
	}
}

// Fork accepts a sandbox that begins with what another one is now, and of which that one's log tells: it is there whole or leaves
// nothing. resolve says what it is to be, given the other one and the image that it is made from. The same request again,
// with its requestID, returns the same fork. It fails with ErrSandboxIDTaken, and as Create and Snapshot do.
func (s *System) Fork(ctx context.Context, sandboxID, forkID, requestID string, resolve func(of View, image string) (*agboxv1.CreateSpec, error)) (View, error) {
	id := runtime.ForkSnapshotID(forkID)
	image := s.runtime.SnapshotImage(id)
	for {
		if earlier, used := s.registry.get(forkID); used {
			if earlier.spec.GetImage() != image || requestID == "" {
				return View{}, fmt.Errorf("%w: %s", ErrSandboxIDTaken, forkID)
			}
			return s.repeated(ctx, earlier, earlier.spec, requestID)
		}
		of, err := s.Sandbox(sandboxID)
		if err != nil {
			return View{}, err
		}
		spec, err := resolve(of, image)
		if err != nil {
			return View{}, err
		}
		m, err := s.capture(ctx, runtime.Snapshot{ForkID: forkID, RequestID: requestID, Snapshot: &agboxv1.Snapshot{
			SnapshotId: id, SandboxId: sandboxID,
		}}, spec)
		if pending, err := s.otherSnapshot(ctx, id, err); err != nil {
			return View{}, err
		} else if !pending {
			return m.view, nil
		}
	}
}

// otherSnapshot waits for the end of another snapshot with the id where err says that there is one, and returns err otherwise.
func (s *System) otherSnapshot(ctx context.Context, id string, err error) (pending bool, _ error) {
	if !errors.Is(err, lifecycle.ErrSnapshotPending) && !errors.Is(err, persist.ErrSnapshotPending) {
		return false, err
	}
	return true, s.awaitSnapshot(ctx, id)
}

// awaitSnapshot returns when no log announces a snapshot with this id whose end it does not tell.
func (s *System) awaitSnapshot(ctx context.Context, id string) error {
	for {
		sandboxID, err := s.db.PendingSnapshot(id)
		if err != nil || sandboxID == "" {
			return err
		}
		changed := s.db.Changed(sandboxID)
		if again, err := s.db.PendingSnapshot(id); err != nil || again != sandboxID {
			continue
		}
		select {
		case <-changed:
		case <-s.ended:
			return ErrShuttingDown
		case <-ctx.Done():
			return fmt.Errorf("snapshot %s is being made: %w", id, context.Cause(ctx))
		}
	}
}

// CreateFrom is Create from a snapshot, whose image the spec names and which is not deleted meanwhile. It fails with
// runtime.ErrSnapshotNotFound.
func (s *System) CreateFrom(ctx context.Context, snapshotID, id string, spec *agboxv1.CreateSpec, requestID string) (View, error) {
	return s.create(ctx, id, spec, origin{requestID: requestID, snapshotID: snapshotID})
}

// DeleteSnapshot removes a snapshot that nobody needs, once it is made. It fails with runtime.ErrSnapshotInUse, in words, or
// runtime.ErrSnapshotNotFound.
func (s *System) DeleteSnapshot(ctx context.Context, id string) error {
	image := s.runtime.SnapshotImage(id)
	for {
		if err := s.awaitSnapshot(ctx, id); err != nil {
			return err
		}
		release, err := s.registry.withdraw(ctx, image)
		if err != nil {
			return err
		}
		if pending, err := s.db.PendingSnapshot(id); err == nil && pending != "" {
			release() // whoever makes it waits for that, and we for them
			continue
		}
		defer release()
		return s.deleteSnapshot(ctx, id)
	}
}

// deleteSnapshot is DeleteSnapshot while nobody can begin to use the image.
func (s *System) deleteSnapshot(ctx context.Context, id string) error {
	found, err := s.runtime.Snapshot(ctx, id)
	if err != nil {
		return err
	}
	if err := OwnedByFork(found); err != nil {
		return err
	}
	needed, err := s.MadeFrom(found)
	if err != nil {
		return err
	}
	if len(needed) > 0 {
		return &lifecycle.Refusal{Kind: runtime.ErrSnapshotInUse, Message: fmt.Sprintf(
			"%s made from snapshot %s and may need it again: delete what was made from it first", enumerated(needed), id)}
	}
	err = s.runtime.DeleteSnapshot(ctx, id)
	if errors.Is(err, runtime.ErrSnapshotInUse) {
		why := strings.TrimPrefix(err.Error(), runtime.ErrSnapshotInUse.Error()+": ")
		err = &lifecycle.Refusal{Kind: runtime.ErrSnapshotInUse, Message: fmt.Sprintf(
			"snapshot %s is needed by a container that is no sandbox's: remove that first: %s", id, why)}
	}
	return err
}

// OwnedByFork refuses a snapshot that goes with the sandbox that was made from it.
func OwnedByFork(snapshot runtime.Snapshot) error {
	if snapshot.ForkID == "" {
		return nil
	}
	return &lifecycle.Refusal{Kind: runtime.ErrSnapshotInUse, Message: fmt.Sprintf(
		"snapshot %s belongs to sandbox %s and goes when that is deleted: make one of that sandbox to keep or to use",
		snapshot.SnapshotId, snapshot.ForkID)}
}

// MadeFrom returns the ids of the sandboxes that need the snapshot, in order: all that were made from it, or are about to be, and
// are not DELETED.
func (s *System) MadeFrom(snapshot runtime.Snapshot) ([]string, error) {
	ids := s.registry.claimed(snapshot.Image)
	views, err := s.Sandboxes(func(spec *agboxv1.CreateSpec) bool { return spec.GetImage() == snapshot.Image })
	for _, view := range views {
		if view.State.Phase != lifecycle.Deleted {
			ids = append(ids, view.State.SandboxID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), err
}

func enumerated(ids []string) string {
	const most = 5
	text := strings.Join(ids[:min(len(ids), most)], ", ")
	switch {
	case len(ids) > most:
		return fmt.Sprintf("sandboxes %s and %d more are", text, len(ids)-most)
	case len(ids) > 1:
		return "sandboxes " + text + " are"
	}
	return "sandbox " + text + " is"
}

// withdraw keeps sandboxes from being made from the image, and snapshots from being made as it, until release. It waits for whoever
// else does so.
func (r *registry) withdraw(ctx context.Context, image string) (release func(), err error) {
	for {
		r.mu.Lock()
		withdrawn := r.withdrawn[image]
		if withdrawn == nil {
			done := make(chan struct{})
			r.withdrawn[image] = done
			r.mu.Unlock()
			return func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.withdrawn, image)
				close(done)
			}, nil
		}
		r.mu.Unlock()
		if err := awaitRelease(ctx, image, withdrawn); err != nil {
			return nil, err
		}
	}
}

// kept returns when nobody withdraws the image. A caller whose use of it is known by then is not overlooked.
func (r *registry) kept(ctx context.Context, image string) error {
	r.mu.RLock()
	withdrawn := r.withdrawn[image]
	r.mu.RUnlock()
	if withdrawn == nil {
		return nil
	}
	return awaitRelease(ctx, image, withdrawn)
}

func awaitRelease(ctx context.Context, image string, withdrawn <-chan struct{}) error {
	select {
	case <-withdrawn:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("image %s is being removed: %w", image, context.Cause(ctx))
	}
}

// claimed returns the ids of the creates with this image that are not accepted yet.
func (r *registry) claimed(image string) (ids []string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for id, claim := range r.claims {
		if claim.spec.GetImage() == image {
			ids = append(ids, id)
		}
	}
	return ids
}

// origin is what a create comes from.
type origin struct {
	requestID string
	// snapshotID is the snapshot whose image the spec names, forkedFrom the sandbox that it is a fork of; "" for none.
	snapshotID, forkedFrom string
}

// usable fails where the sandbox's id is claimed and what it is made from is gone, or a name that it needs is taken.
func (s *System) usable(ctx context.Context, id string, spec *agboxv1.CreateSpec, o origin) error {
	if o.snapshotID != "" {
		// A deletion that was there first does not know of the claim.
		if err := s.registry.kept(ctx, spec.GetImage()); err != nil {
			return err
		}
		if _, err := s.runtime.Snapshot(ctx, o.snapshotID); err != nil {
			return err
		}
	}
	return s.runtime.Conflict(ctx, id)
}
