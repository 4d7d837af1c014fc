package persist

import (
	"time"

	"go.etcd.io/bbolt"
)

// Origin is what the database knows of where something came from that carries a sandbox's id.
type Origin int

const (
	// Unknown: no sandbox with this id was accepted here, or begun.
	Unknown Origin = iota
	// Begun: a fork with this id was announced. Something of it may be there that is no sandbox yet.
	Begun
	// Accepted: a sandbox with this id was accepted here, whose history may be gone.
	Accepted
)

// Origins returns those of all the ids, as of one moment.
func (db *DB) Origins(ids []string) (map[string]Origin, error) {
	origins := make(map[string]Origin, len(ids))
	err := db.view(func(tx *bbolt.Tx) error {
		for _, id := range ids {
			switch {
			case tx.Bucket(sandboxIDs).Get([]byte(id)) != nil:
				origins[id] = Accepted
			case tx.Bucket(begun).Get([]byte(id)) != nil:
				origins[id] = Begun
			default:
				origins[id] = Unknown
			}
		}
		return nil
	})
	return origins, err
}

// End says that nothing is there any more of a fork that was not accepted.
func (db *DB) End(sandboxID string) error {
	return db.write("", func(tx *bbolt.Tx) error { return tx.Bucket(begun).Delete([]byte(sandboxID)) })
}

// Quarantine keeps in mind since when each of these ids has been there though no sandbox with it was ever accepted, now for
// those that are new, and forgets all others. It returns the times.
func (db *DB) Quarantine(ids []string, now time.Time) (map[string]time.Time, error) {
	since, err := db.Quarantined()
	if err != nil {
		return nil, err
	}
	next := make(map[string]time.Time, len(ids))
	changed := len(ids) != len(since)
	for _, id := range ids {
		at, known := since[id]
		if !known {
			at, changed = now, true
		}
		next[id] = at
	}
	if !changed {
		return next, nil
	}
	return next, db.write("", func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket(quarantine); err != nil {
			return err
		}
		bucket, err := tx.CreateBucket(quarantine)
		for id, at := range next {
			if err == nil {
				err = bucket.Put([]byte(id), encodeTime(at))
			}
		}
		return err
	})
}

// Quarantined returns what the last Quarantine was told.
func (db *DB) Quarantined() (map[string]time.Time, error) {
	since := map[string]time.Time{}
	err := db.view(func(tx *bbolt.Tx) error {
		return tx.Bucket(quarantine).ForEach(func(id, at []byte) error {
			since[string(id)] = decodeTime(at)
			return nil
		})
	})
	return since, err
}
