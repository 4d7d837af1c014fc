package persist

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"go.etcd.io/bbolt"
)

// commit records a group of writes in one transaction. A write that cannot be stored is left out and fails alone; where
// the file takes nothing, all fail at once, because each further transaction would only find that again.
func (db *DB) commit(group []*write) {
	group = db.refuseUncovered(group)
	if err := db.ready(); err != nil {
		db.fail(group, err)
		return
	}
	for len(group) > 0 {
		crashPoint()
		broken, err := db.try(group)
		crashPoint()
		switch {
		case broken != nil:
			db.fail([]*write{broken}, err)
			group = slices.DeleteFunc(group, func(w *write) bool { return w == broken })
		case err != nil:
			db.full = noSpace(err) || errors.Is(err, syscall.EROFS)
			db.fail(group, err)
			return
		default:
			db.full = false
			db.succeed(group)
			return
		}
	}
}

// try returns the write that cannot be stored, if it was that.
func (db *DB) try(group []*write) (broken *write, err error) {
	db.transactions.Add(1)
	generation := db.generation
	err = db.bolt.Load().Update(func(tx *bbolt.Tx) error {
		created := false
		for _, w := range group {
			w.err = w.apply(tx)
			// A refusal was found before anything was put; any other error may have left half of a write
			// behind, so the transaction must not commit.
			if w.err != nil && !isRefusal(w.err) {
				broken = w
				return w.err
			}
			created = created || w.created
		}
		if created {
			return db.advance(tx)
		}
		return nil
	})
	if err != nil {
		db.generation = generation
	}
	return broken, err
}

func (db *DB) fail(group []*write, err error) {
	err = db.writeError(err)
	for _, w := range group {
		w.err = err
		close(w.done)
	}
}

// succeed answers those whose writes are durable. Who has created a sandbox waits for the witness, too.
func (db *DB) succeed(group []*write) {
	for _, covered := range []bool{false, true} {
		if covered {
			if err := db.testify(); err != nil { // the next create tries again, and is refused
				db.log.Error("audit: the instance file does not say that the database has a new sandbox", "error", err)
			}
		}
		for _, w := range group {
			if w.created == covered {
				db.answer(w)
			}
		}
	}
}

func (db *DB) answer(w *write) {
	if w.err == nil && w.changed != "" {
		db.changes.wake(w.changed, w.created)
	}
	close(w.done)
}

// refuseUncovered answers creates that could be lost without a trace, with a copy of the database, because the witness
// could not be written the last time and cannot be now.
func (db *DB) refuseUncovered(group []*write) []*write {
	err := db.testify()
	if err == nil {
		return group
	}
	return slices.DeleteFunc(group, func(w *write) bool {
		if w.creates {
			db.fail([]*write{w}, err)
		}
		return w.creates
	})
}

// probeSize is more than a transaction needs, in bytes.
const probeSize = 1 << 20

// ready reports why nothing can be recorded now. Where a disk was full it looks for room by itself: a transaction that
// fails for want of it has the whole file read.
func (db *DB) ready() error {
	if err := db.inPlace(); err != nil {
		return err
	}
	if !db.full {
		return nil
	}
	probe, err := unnamed(db.path)
	if err != nil {
		return err
	}
	_, err = probe.Write(make([]byte, probeSize))
	if err == nil {
		err = probe.Sync()
	}
	return errors.Join(err, probe.Close())
}

// inPlace reports why the file that is open is not the one that the next start finds. One that was removed is put back:
// the daemon still has all of it.
func (db *DB) inPlace() error {
	info, err := os.Stat(db.path)
	if errors.Is(err, os.ErrNotExist) {
		if err := db.putBack(); err != nil {
			return fmt.Errorf("%w: %s was removed and cannot be put back: %w: make its directory writable, or save the data with agboxd backup",
				ErrMoved, db.path, err)
		}
		info, err = db.file, nil
	}
	if err == nil && os.SameFile(info, db.file) {
		if db.moved = nil; db.unsynced {
			err = syncDir(filepath.Dir(db.path))
			db.unsynced = err != nil
		}
		if err == nil {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %s cannot be looked at: %w", ErrMoved, db.path, err)
	}
	if db.moved == nil {
		db.moved = db.replaced()
		db.log.Error("audit: the database was replaced while agboxd runs: changes are refused", "error", db.moved)
	}
	return db.moved
}
