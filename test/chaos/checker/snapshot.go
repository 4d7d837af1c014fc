package checker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Labels of a snapshot's image.
const (
	labelSnapshotInstance = "io.github.1996fanrui.agents-sandbox.snapshot-instance"
	labelSnapshotFork     = "io.github.1996fanrui.agents-sandbox.snapshot-fork-id"
)

// snapshot is what clients asked for and were told of one.
type snapshot struct {
	accepted, deleteAsked, deleted bool
}

// AskSnapshot notes that a snapshot is about to be asked for.
func (r *Record) AskSnapshot(id string) { r.note(id, func(*snapshot) {}) }

// AcceptedSnapshot notes that the daemon has made it.
func (r *Record) AcceptedSnapshot(id string) { r.note(id, func(s *snapshot) { s.accepted = true }) }

// AskDeleteSnapshot notes that its deletion is about to be asked for.
func (r *Record) AskDeleteSnapshot(id string) { r.note(id, func(s *snapshot) { s.deleteAsked = true }) }

// DeletedSnapshot notes that the daemon has deleted it.
func (r *Record) DeletedSnapshot(id string) { r.note(id, func(s *snapshot) { s.deleted = true }) }

func (r *Record) note(id string, change func(*snapshot)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.snapshots[id] == nil {
		r.snapshots[id] = &snapshot{}
	}
	change(r.snapshots[id])
}

// nextLife notes that the daemon has ended. The engine may finish half a snapshot after the next daemon has looked for such, so
// the one after that is the first which must not have it.
func (c *Checker) nextLife() { c.outlived, c.unnamed = c.unnamed, nil }

// finding is one thing that is wrong with snapshots. The daemon has a moment to mend it: it removes what a dead one has left.
type finding struct {
	kind          Kind
	subject, text string
}

// awaitSnapshots judges the snapshots and their images once nothing is wrong with them, or the time for that is over.
func (c *Checker) awaitSnapshots(ctx context.Context, known map[string]agboxv1.SandboxState) error {
	look := time.NewTicker(lateLook)
	defer look.Stop()
	for over := time.Now().Add(lateTime); ; {
		found, err := c.snapshotFindings(ctx, known)
		if err != nil {
			return err
		}
		if len(found) == 0 || time.Now().After(over) {
			for _, f := range found {
				c.report.add(f.kind, f.subject, "%s", f.text)
			}
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Checker) snapshotFindings(ctx context.Context, known map[string]agboxv1.SandboxState) (found []finding, err error) {
	listed, err := c.Client.ListSnapshots(ctx, &agboxv1.ListSnapshotsRequest{})
	if err != nil {
		return nil, fmt.Errorf("%w: snapshots: %w", ErrUnreadable, err)
	}
	instance, err := c.instance()
	if err != nil {
		return nil, err
	}
	images, err := c.images(ctx, instance)
	if err != nil {
		return nil, fmt.Errorf("%w: images: %w", ErrUnreadable, err)
	}
	there := map[string]bool{}
	refs := map[string]bool{}
	c.Record.mu.Lock()
	defer c.Record.mu.Unlock()
	for _, s := range listed.Snapshots {
		there[s.SnapshotId], refs[s.Image] = true, true
		if record := c.Record.snapshots[s.SnapshotId]; !s.Fork && (record == nil || record.deleted) {
			found = append(found, finding{LeakedImage, s.SnapshotId, "it is listed, and was deleted or never asked for"})
		}
		if !slices.ContainsFunc(images, func(i image.Summary) bool { return slices.Contains(i.RepoTags, s.Image) }) {
			found = append(found, finding{LostSnapshot, s.SnapshotId, "it is listed, and the engine does not have its image " + s.Image})
		}
	}
	for id, s := range c.Record.snapshots {
		if s.accepted && !s.deleteAsked && !there[id] {
			found = append(found, finding{LostSnapshot, id, "it was made, nobody asked for its deletion, and it is not listed"})
		}
	}
	unnamed := map[string]bool{}
	for _, i := range images {
		if !slices.ContainsFunc(i.RepoTags, func(ref string) bool { return ref != "<none>:<none>" }) {
			if unnamed[i.ID] = true; c.outlived[i.ID] {
				found = append(found, finding{LeakedImage, i.ID, "it is half a snapshot, and two daemons have left it"})
			}
			continue
		}
		if !slices.ContainsFunc(i.RepoTags, func(ref string) bool { return refs[ref] }) {
			found = append(found, finding{LeakedImage, i.ID, fmt.Sprintf("no snapshot that is listed has it: %v", i.RepoTags)})
		}
		if fork := i.Labels[labelSnapshotFork]; fork != "" {
			if state, is := known[fork]; !is || state == deleted {
				found = append(found, finding{LeakedImage, i.ID, "its fork " + fork + " is " + label(state, is)})
			}
		}
	}
	c.unnamed = unnamed
	return found, nil
}

// images are those of the daemon's snapshots.
func (c *Checker) images(ctx context.Context, instance string) ([]image.Summary, error) {
	return c.Engine.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelSnapshotInstance+"="+instance))})
}
