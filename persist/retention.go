package persist

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// DeletedBefore returns the sandboxes that were DELETED before t and whose history is still kept.
func (db *DB) DeletedBefore(t time.Time) ([]string, error) {
	var list []string
	err := db.view(func(tx *bbolt.Tx) error {
		return tx.Bucket(deletedTimes).ForEach(func(id, at []byte) error {
			if decodeTime(at).Before(t) {
				list = append(list, string(id))
			}
			return nil
		})
	})
	return list, err
}

// OldestDeletion returns when the sandbox was DELETED whose history is due first; found is false when none is kept.
func (db *DB) OldestDeletion() (at time.Time, found bool, err error) {
	err = db.view(func(tx *bbolt.Tx) error {
		return tx.Bucket(deletedTimes).ForEach(func(_, value []byte) error {
			if t := decodeTime(value); !found || t.Before(at) {
				at, found = t, true
			}
			return nil
		})
	})
	return at, found, err
}

// Purge removes the history of a DELETED sandbox and of its execs. Their ids stay reserved. It refuses with
// ErrConflict a sandbox that is not DELETED, and does nothing more for one that is purged already.
func (db *DB) Purge(sandboxID string) error {
	err := db.write(sandboxID, func(tx *bbolt.Tx) error {
		id := []byte(sandboxID)
		if tx.Bucket(configs).Get(id) == nil {
			return nil
		}
		if tx.Bucket(deletedTimes).Get(id) == nil {
			return fmt.Errorf("%w: sandbox %s is not deleted", ErrConflict, sandboxID)
		}
		if requests := tx.Bucket(execConfigsOf(sandboxID)); requests != nil {
			ends := tx.Bucket(execEnds)
			if err := requests.ForEach(func(execID, _ []byte) error { return ends.Delete(execID) }); err != nil {
				return err
			}
		}
		for _, bucket := range [][]byte{eventsOf(sandboxID), execConfigsOf(sandboxID), execMarksOf(sandboxID), execCancelsOf(sandboxID)} {
			if err := tx.DeleteBucket(bucket); err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
				return err
			}
		}
		for _, bucket := range [][]byte{configs, deletedTimes, marks, checkpoints} {
			if err := tx.Bucket(bucket).Delete(id); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		db.changes.forget(sandboxID)
	}
	return err
}

// trim removes the events up to sequence. An exec that ended in one of them is forgotten with it; its id stays
// reserved, and its files are for whoever asks for TrimmedExecs.
func trim(tx *bbolt.Tx, sandboxID string, sequence uint64) error {
	events := tx.Bucket(eventsOf(sandboxID))
	if events == nil {
		return nil
	}
	cursor := events.Cursor()
	for key, value := cursor.First(); key != nil && decodeUint(key) <= sequence; key, value = cursor.First() {
		event := &agboxv1.SandboxEvent{}
		if err := proto.Unmarshal(value, event); err != nil {
			return fmt.Errorf("%w: event %d of sandbox %s: %w", ErrCorrupt, decodeUint(key), sandboxID, err)
		}
		if err := cursor.Delete(); err != nil {
			return err
		}
		if !endsExec(event) {
			continue
		}
		id := []byte(event.GetExec().GetExecId())
		if err := cmp.Or(tx.Bucket(execEnds).Delete(id), tx.Bucket(trimmedExecs).Put(trimmedKey(sandboxID, string(id)), nil)); err != nil {
			return err
		}
		for _, name := range [][]byte{execConfigsOf(sandboxID), execMarksOf(sandboxID)} {
			if bucket := tx.Bucket(name); bucket != nil {
				if err := bucket.Delete(id); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func endsExec(event *agboxv1.SandboxEvent) bool {
	return slices.Contains([]agboxv1.EventType{
		agboxv1.EventType_EXEC_FINISHED, agboxv1.EventType_EXEC_FAILED, agboxv1.EventType_EXEC_CANCELLED}, event.EventType)
}
