package lifecycle

import (
	"errors"
	"maps"
	"slices"

	journalv1 "github.com/agbox-dev/agbox/proto/agbox/journal/v1"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// ErrSnapshotPending: a snapshot with this id is on its way. What becomes of it, the log tells.
var ErrSnapshotPending = errors.New("lifecycle: snapshot is on its way")

// Codes that SANDBOX_SNAPSHOT_FAILED carries, beside those of the runtime. Interrupted: the daemon ended, or who asked has left.
const (
	CodeSnapshotFailed      = "SNAPSHOT_FAILED"
	CodeSnapshotInterrupted = "SNAPSHOT_INTERRUPTED"
)

type (
	// Snapshot announces a snapshot of the sandbox, which is made when its turn comes. With a ForkID it is made for that sandbox alone,
	// and its end is known once that was accepted.
	Snapshot struct{ ID, Image, ForkID string }
	// SnapshotEnded is the end of a snapshot: made, or with a Code nothing of it is there.
	SnapshotEnded struct {
		ID            string
		SizeBytes     uint64
		Code, Message string
	}
)

func (Snapshot) name() string      { return "snapshot" }
func (SnapshotEnded) name() string { return "snapshot ended" }

// NothingToKeep refuses a snapshot of a sandbox whose files are gone.
func NothingToKeep(s State, why string) error { return refusal(s, Snapshot{}, ErrInvalidState, why) }

func (d *decision) snapshot(c Snapshot) error {
	if d.state.Snapshots[c.ID] != nil {
		return refuse(ErrSnapshotPending, "snapshot %s of sandbox %s is on its way", c.ID, d.state.SandboxID)
	}
	d.emitSnapshot(agboxv1.EventType_SANDBOX_SNAPSHOT_REQUESTED, &agboxv1.SnapshotEventDetails{
		SnapshotId: c.ID, ForkId: c.ForkID, Image: c.Image,
	})
	return nil
}

func (d *decision) snapshotEnded(c SnapshotEnded) {
	pending := d.state.Snapshots[c.ID]
	if pending == nil {
		return
	}
	kind := agboxv1.EventType_SANDBOX_SNAPSHOT_MADE
	if c.Code != "" {
		kind = agboxv1.EventType_SANDBOX_SNAPSHOT_FAILED
	}
	d.emitSnapshot(kind, &agboxv1.SnapshotEventDetails{
		SnapshotId: c.ID, ForkId: pending.ForkId, Image: pending.Image,
		SizeBytes: c.SizeBytes, ErrorCode: c.Code, ErrorMessage: c.Message,
	})
}

// endSnapshots ends those whose turn did not come while there were files.
func (d *decision) endSnapshots(why string) {
	for _, id := range slices.Sorted(maps.Keys(d.state.Snapshots)) {
		d.snapshotEnded(SnapshotEnded{ID: id, Code: CodeSnapshotFailed, Message: why})
	}
}

func (d *decision) emitSnapshot(kind agboxv1.EventType, details *agboxv1.SnapshotEventDetails) {
	d.emit(&event{EventType: kind, SandboxState: d.state.Phase, Details: &agboxv1.SandboxEvent_SnapshotDetails{SnapshotDetails: details}})
}

func (s *State) foldSnapshot(e *event) {
	details := e.GetSnapshotDetails()
	if e.EventType != agboxv1.EventType_SANDBOX_SNAPSHOT_REQUESTED {
		s.Snapshots = without(s.Snapshots, details.GetSnapshotId())
		return
	}
	s.Snapshots = put(s.Snapshots, details.GetSnapshotId(), &journalv1.PendingSnapshot{
		Sequence: e.Sequence, Image: details.GetImage(), ForkId: details.GetForkId(),
	})
}

// NextSnapshot returns the id of the snapshot whose turn it is, "" where none is on its way.
func (s State) NextSnapshot() (id string) {
	for other, pending := range s.Snapshots {
		if id == "" || pending.Sequence < s.Snapshots[id].Sequence {
			id = other
		}
	}
	return id
}
