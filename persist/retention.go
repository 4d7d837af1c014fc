package persist

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
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

// Purge removes the history of a DELETED sandbox and of its execs. Their ids stay reserved. It refuses with
// ErrConflict a sandbox that is not DELETED, and does nothing more for one that is purged already.
func (db *DB) Purge(sandboxID string) error {
	return db.write(sandboxID, func(tx *bbolt.Tx) error {
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
		for _, bucket := range [][]byte{eventsOf(sandboxID), execConfigsOf(sandboxID), execCancelsOf(sandboxID)} {
			if err := tx.DeleteBucket(bucket); err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
				return err
			}
		}
		return errors.Join(tx.Bucket(configs).Delete(id), tx.Bucket(deletedTimes).Delete(id))
	})
}
