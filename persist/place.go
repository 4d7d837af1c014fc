package persist

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"go.etcd.io/bbolt"
)

// Backup writes the database to a file, as it is at one moment, with everything that was recorded by then, and returns its
// size in bytes. It may be called at any time, also where the database's own file was taken away. The writer must not
// block: until it is done the file cannot grow.
func (db *DB) Backup(to io.Writer) (size int64, err error) {
	err = db.view(func(tx *bbolt.Tx) error {
		size, err = tx.WriteTo(to)
		return err
	})
	return size, err
}

// Check sees to it that the database's file, and its witness, are where they belong: what was removed is put back. It fails
// with ErrMoved where that cannot be; from then on changes fail so too. For whoever hears that something has happened in
// the directory.
func (db *DB) Check() error {
	return db.hand(&write{apply: func(*bbolt.Tx) error { return db.checkWitness() }})
}

// putBack copies the file that is open, of which nothing is lost, to its old place, and goes on with the copy.
func (db *DB) putBack() error {
	old := db.bolt.Load()
	err := PlaceFile(db.path, 0o600, func(to io.Writer) error {
		return old.View(func(tx *bbolt.Tx) error {
			_, err := tx.WriteTo(to)
			return err
		})
	})
	if err != nil {
		return err
	}
	bolt, err := openFile(db.path)
	if err != nil {
		return err
	}
	if db.file, err = os.Stat(db.path); err != nil {
		return errors.Join(err, bolt.Close())
	}
	db.bolt.Store(bolt)
	db.log.Error("audit: the database was removed while agboxd runs, and put back whole", slog.String("path", db.path))
	return old.Close()
}

// replaced saves the database that is open beside the file that somebody has put in its place, and says what to do. That
// file stays as it is: it may be what they want.
func (db *DB) replaced() error {
	saved := db.path + ".rescued"
	err := PlaceFile(saved, 0o600, func(to io.Writer) error {
		_, err := db.Backup(to)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: somebody put another file at %s, and a copy of what agboxd had there could not be saved: %w: "+
			"make room, and save it with agboxd backup before agboxd ends", ErrMoved, db.path, err)
	}
	return fmt.Errorf("%w: somebody put another file at %s; what agboxd had there is saved as %s: stop agboxd, put the right one at %s, "+
		"and start it again", ErrMoved, db.path, saved, db.path)
}

// checkWitness puts the witness back when it was removed or changed.
func (db *DB) checkWitness() error {
	if db.witness == nil {
		return nil
	}
	there, err := os.Stat(db.witness.path)
	ours, err2 := db.witness.file.Stat()
	if err == nil && err2 == nil && os.SameFile(there, ours) {
		return nil
	}
	if err := db.witness.place(db.witness.identity); err != nil {
		return err
	}
	db.log.Error("audit: the instance file was removed or replaced while agboxd runs, and put back", slog.String("path", db.witness.path))
	return nil
}
