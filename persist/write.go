package persist

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	journalv1 "github.com/agbox-dev/agbox/proto/agbox/journal/v1"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// groupLimit is how many waiting writes share one transaction; more only adds latency (facts: group commit
// peaks near 100 concurrent writers).
const groupLimit = 1024

// Entry is one step of one sandbox, recorded whole or not at all.
type Entry struct {
	SandboxID string
	// After is the sequence of the newest event that the caller knows; Events continue from it.
	After  uint64
	Events []*agboxv1.SandboxEvent

	// Create reserves SandboxID for ever and keeps the spec.
	Create *agboxv1.CreateSpec
	// StartExec reserves its exec id for ever and keeps the request.
	StartExec *agboxv1.CreateExecRequest
	// CancelExec keeps in mind that the cancel of this exec was accepted.
	CancelExec string
	// Place is that of a sandbox made ahead which Create takes, "" for none. It is taken once: ErrPlaceTaken.
	Place string
	// RequestID marks what Create or StartExec reserve, "" for none.
	RequestID string

	// Checkpoint is what the log folds to with Events. TrimTo removes the events up to this sequence, which the
	// checkpoint must cover, and what is kept of the execs that ended in them.
	Checkpoint *journalv1.State
	TrimTo     uint64

	At time.Time

	recorded *[]Encoded // where Events go once more, as they are kept
}

type write struct {
	apply func(*bbolt.Tx) error
	// changed is the sandbox whose readers wake once this is durable.
	changed string
	// creates: it may accept a sandbox. created: it did, which did not exist before.
	creates, created bool
	// recorded are the events.
	recorded []Encoded
	err      error
	done     chan struct{}
}

// Append records e and returns once it is on disk. It fails with ErrSandboxIDTaken, ErrExecIDTaken,
// ErrSnapshotPending or ErrConflict when e does not fit what is recorded, and with ErrNoSpace or ErrClosed; a failed entry leaves
// no trace, and does not disturb the entries of others.
func (db *DB) Append(e Entry) error {
	return db.AppendAll([]Entry{e})[0]
}

// AppendAll is Append for several entries of one sandbox, in order, at the price of one. It returns an error for
// each: what follows a refused entry as if that had been recorded is a conflict.
func (db *DB) AppendAll(entries []Entry) []error {
	errs := make([]error, len(entries))
	if len(entries) == 0 {
		return errs
	}
	w := &write{changed: entries[0].SandboxID}
	for _, e := range entries {
		w.creates = w.creates || e.Create != nil
	}
	w.apply = func(tx *bbolt.Tx) error {
		recorded := false
		w.created, w.recorded = false, nil // by an earlier try
		for i, e := range entries {
			e.recorded = &w.recorded
			if errs[i] = e.apply(tx); errs[i] != nil && !isRefusal(errs[i]) {
				return errs[i]
			}
			recorded = recorded || errs[i] == nil
			w.created = w.created || errs[i] == nil && e.Create != nil
		}
		if !recorded {
			return errs[0]
		}
		return nil
	}
	if err := db.hand(w); err != nil && !isRefusal(err) {
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

func (db *DB) write(changed string, apply func(*bbolt.Tx) error) error {
	return db.hand(&write{apply: apply, changed: changed})
}

func (db *DB) hand(w *write) error {
	w.done = make(chan struct{})
	select {
	case db.queue <- w:
		<-w.done
		return w.err
	case <-db.closing:
		return ErrClosed
	}
}

// writeLoop is the only writer. The queue is unbuffered, so whoever handed in a write is waiting for it, and
// when closing is seen nobody is left behind.
func (c *committer) writeLoop() {
	defer c.written.Done()
	for {
		select {
		case first := <-c.queue:
			c.commit(c.gather(first))
		case <-c.closing:
			return
		}
	}
}

func (c *committer) gather(first *write) []*write {
	group := []*write{first}
	for len(group) < groupLimit {
		select {
		case w := <-c.queue:
			group = append(group, w)
		default:
			return group
		}
	}
	return group
}

func isRefusal(err error) bool {
	for _, refusal := range []error{ErrSandboxIDTaken, ErrExecIDTaken, ErrPlaceTaken, ErrSnapshotPending, ErrConflict, ErrNoSandbox, ErrNoExec} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// apply checks everything before it puts anything.
func (e Entry) apply(tx *bbolt.Tx) error {
	if e.Create != nil && tx.Bucket(sandboxIDs).Get([]byte(e.SandboxID)) != nil {
		return fmt.Errorf("%w: %s", ErrSandboxIDTaken, e.SandboxID)
	}
	if e.Place != "" && tx.Bucket(places).Get([]byte(e.Place)) != nil {
		return fmt.Errorf("%w: %s", ErrPlaceTaken, e.Place)
	}
	if e.Create == nil && tx.Bucket(configs).Get([]byte(e.SandboxID)) == nil {
		return fmt.Errorf("%w: %s", ErrNoSandbox, e.SandboxID)
	}
	if e.StartExec != nil && tx.Bucket(execIDs).Get([]byte(e.StartExec.ExecId)) != nil {
		return fmt.Errorf("%w: %s", ErrExecIDTaken, e.StartExec.ExecId)
	}
	if newest := newestSequence(tx.Bucket(eventsOf(e.SandboxID))); newest != e.After {
		return fmt.Errorf("%w: sandbox %s is at %d, the entry follows %d", ErrConflict, e.SandboxID, newest, e.After)
	}
	for _, event := range e.Events {
		if event.EventType != agboxv1.EventType_SANDBOX_SNAPSHOT_REQUESTED {
			continue
		}
		if id := event.GetSnapshotDetails().GetSnapshotId(); tx.Bucket(snapshots).Get([]byte(id)) != nil {
			return fmt.Errorf("%w: %s", ErrSnapshotPending, id)
		}
	}
	return e.put(tx)
}

func (e Entry) put(tx *bbolt.Tx) error {
	if e.Create != nil {
		if err := cmp.Or(
			putMessage(tx.Bucket(configs), []byte(e.SandboxID), e.Create),
			tx.Bucket(sandboxIDs).Put([]byte(e.SandboxID), encodeTime(e.At)),
			tx.Bucket(begun).Delete([]byte(e.SandboxID)),
		); err != nil {
			return err
		}
		if e.Place != "" {
			if err := cmp.Or(
				tx.Bucket(takenPlaces).Put([]byte(e.SandboxID), []byte(e.Place)),
				tx.Bucket(places).Put([]byte(e.Place), []byte(e.SandboxID)),
			); err != nil {
				return err
			}
		}
		if e.RequestID != "" {
			key := &journalv1.IdempotencyKey{RequestId: e.RequestID}
			if err := putMessage(tx.Bucket(marks), []byte(e.SandboxID), key); err != nil {
				return err
			}
		}
	}
	if e.StartExec != nil {
		if err := e.putExec(tx); err != nil {
			return err
		}
	}
	if e.CancelExec != "" {
		cancels, err := tx.CreateBucketIfNotExists(execCancelsOf(e.SandboxID))
		if err != nil {
			return err
		}
		if err := cancels.Put([]byte(e.CancelExec), encodeTime(e.At)); err != nil {
			return err
		}
	}
	return cmp.Or(e.putEvents(tx), e.putCheckpoint(tx))
}

func (e Entry) putExec(tx *bbolt.Tx) error {
	id := []byte(e.StartExec.ExecId)
	configs, err := tx.CreateBucketIfNotExists(execConfigsOf(e.SandboxID))
	if err != nil {
		return err
	}
	if e.RequestID != "" {
		marks, err := tx.CreateBucketIfNotExists(execMarksOf(e.SandboxID))
		if err != nil {
			return err
		}
		if err := putMessage(marks, id, &journalv1.IdempotencyKey{RequestId: e.RequestID}); err != nil {
			return err
		}
	}
	return cmp.Or(tx.Bucket(execIDs).Put(id, encodeTime(e.At)), putMessage(configs, id, e.StartExec))
}

func (e Entry) putEvents(tx *bbolt.Tx) error {
	if len(e.Events) == 0 {
		return nil
	}
	events, err := tx.CreateBucketIfNotExists(eventsOf(e.SandboxID))
	if err != nil {
		return err
	}
	events.FillPercent = 1 // keys only ever grow, so pages need no room for later inserts
	for i, event := range e.Events {
		if want := e.After + uint64(i) + 1; event.Sequence != want {
			return fmt.Errorf("persist: event of %s has sequence %d, want %d", e.SandboxID, event.Sequence, want)
		}
		value, err := proto.Marshal(event)
		if err != nil {
			return err
		}
		if err := cmp.Or(events.Put(encodeUint(event.Sequence), value), e.index(tx, event)); err != nil {
			return err
		}
		*e.recorded = append(*e.recorded, Encoded{event.Sequence, value})
	}
	return nil
}

// index keeps what would otherwise need a search of the log.
func (e Entry) index(tx *bbolt.Tx, event *agboxv1.SandboxEvent) error {
	switch {
	case event.EventType == agboxv1.EventType_SANDBOX_DELETED:
		id := []byte(e.SandboxID)
		if place := tx.Bucket(takenPlaces).Get(id); place != nil {
			if err := cmp.Or(tx.Bucket(places).Delete(place), tx.Bucket(takenPlaces).Delete(id)); err != nil {
				return err
			}
		}
		return tx.Bucket(deletedTimes).Put(id, encodeTime(event.OccurredAt.AsTime()))
	case event.GetSnapshotDetails() != nil:
		return e.indexSnapshot(tx, event)
	case endsExec(event):
		id := []byte(event.GetExec().GetExecId())
		if cancels := tx.Bucket(execCancelsOf(e.SandboxID)); cancels != nil {
			if err := cancels.Delete(id); err != nil {
				return err
			}
		}
		return putMessage(tx.Bucket(execEnds), id,
			&journalv1.ExecEnd{SandboxId: e.SandboxID, Sequence: event.Sequence})
	}
	return nil
}

func (e Entry) indexSnapshot(tx *bbolt.Tx, event *agboxv1.SandboxEvent) error {
	details := event.GetSnapshotDetails()
	id := []byte(details.GetSnapshotId())
	if event.EventType != agboxv1.EventType_SANDBOX_SNAPSHOT_REQUESTED {
		return tx.Bucket(snapshots).Delete(id)
	}
	if details.GetForkId() != "" {
		if err := tx.Bucket(begun).Put([]byte(details.GetForkId()), encodeTime(e.At)); err != nil {
			return err
		}
	}
	return tx.Bucket(snapshots).Put(id, []byte(e.SandboxID))
}

func (e Entry) putCheckpoint(tx *bbolt.Tx) error {
	if e.Checkpoint == nil {
		return nil
	}
	if err := putMessage(tx.Bucket(checkpoints), []byte(e.SandboxID), e.Checkpoint); err != nil {
		return err
	}
	return trim(tx, e.SandboxID, min(e.TrimTo, e.Checkpoint.Sequence))
}

func putMessage(bucket *bbolt.Bucket, key []byte, m proto.Message) error {
	value, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return bucket.Put(key, value)
}

func newestSequence(events *bbolt.Bucket) uint64 {
	if events == nil {
		return 0
	}
	key, _ := events.Cursor().Last()
	return decodeUint(key)
}
