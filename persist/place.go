package persist

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
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

// spoolRoom has to be free beyond a copy of the database, in bytes: other things go on meanwhile.
const spoolRoom = 64 << 20

// Spool returns a copy, as Backup makes it, in a file without a name, which is gone once it is closed. It fails with
// ErrNoSpace where there is no room for one.
func (db *DB) Spool() (*os.File, error) {
	db.spooling <- struct{}{} // or each finds room that the others are about to take
	defer func() { <-db.spooling }()
	place := db.path
	if _, err := os.Stat(filepath.Dir(place)); err != nil { // somebody took it away, and this may be what is left
		place = filepath.Join(os.TempDir(), filepath.Base(place))
	}
	spool, err := unnamed(place)
	if err != nil {
		return nil, db.writeError(err)
	}
	if err := db.spool(spool); err != nil {
		return nil, errors.Join(err, spool.Close())
	}
	return spool, nil
}

func (db *DB) spool(to *os.File) error {
	var disk unix.Statfs_t
	if err := unix.Fstatfs(int(to.Fd()), &disk); err != nil {
		return err
	}
	var size int64
	if err := db.view(func(tx *bbolt.Tx) error { size = tx.Size(); return nil }); err != nil {
		return err
	}
	if free := int64(disk.Bavail) * int64(disk.Bsize); free < size+spoolRoom {
		return fmt.Errorf("%w: a copy takes %d bytes for a moment, and beside %s there are %d: free space and ask again", ErrNoSpace, size, db.path, free)
	}
	if _, err := db.Backup(to); err != nil {
		return err
	}
	_, err := to.Seek(0, io.SeekStart)
	return err
}

// Check sees to it that the database's file, and its witness, are where they belong: what was removed is put back. It fails
// with ErrMoved where that cannot be; from then on changes fail so too. For whoever hears that something has happened in
// the directory.
func (db *DB) Check() error {
	return db.hand(&write{apply: func(*bbolt.Tx) error { return db.commits.checkWitness() }})
}

// putBack copies the file that is open, of which nothing is lost, and goes on with the copy once that has the old name. Where
// it fails nothing has changed.
func (c *committer) putBack() error {
	file, err := beside(c.path)
	if err != nil {
		return err
	}
	_, err = c.Backup(file)
	info, statErr := file.Stat()
	var bolt *bbolt.DB
	if err = errors.Join(err, statErr, file.Sync(), file.Close()); err == nil {
		bolt, err = openFile(file.Name())
	}
	if err == nil {
		if err = os.Rename(file.Name(), c.path); err != nil {
			err = errors.Join(err, bolt.Close())
		}
	}
	if err != nil {
		return errors.Join(err, remove(file.Name()))
	}
	c.file, c.unsynced = info, true
	c.log.Error("audit: the database was removed while agboxd runs, and put back whole", slog.String("path", c.path))
	_ = c.bolt.Swap(bolt).Close() // what was to be written is in the copy
	return nil
}

// rescued is what the name of a database that was saved ends in.
const rescued = ".rescued"

// replaced saves the database that is open beside the file that somebody has put in its place, and says what to do. That
// file stays as it is: it may be what they want.
func (c *committer) replaced() error {
	saved := c.path + rescued
	err := PlaceFile(saved, 0o600, func(to io.Writer) error {
		_, err := c.Backup(to)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: somebody put another file at %s, and a copy of what agboxd had there could not be saved: %w: "+
			"make room, and save it with agboxd backup before agboxd ends", ErrMoved, c.path, err)
	}
	return fmt.Errorf("%w: somebody put another file at %s; what agboxd had there is saved as %s: stop agboxd, put the right one at %s, "+
		"and start it again", ErrMoved, c.path, saved, c.path)
}

// checkWitness puts the witness back when it was removed or changed.
func (c *committer) checkWitness() error {
	if c.witness == nil {
		return nil
	}
	there, err := os.Stat(c.witness.path)
	ours, err2 := c.witness.file.Stat()
	if err == nil && err2 == nil && os.SameFile(there, ours) {
		return nil
	}
	if err := c.witness.place(c.witness.identity); err != nil {
		return err
	}
	c.log.Error("audit: the instance file was removed or replaced while agboxd runs, and put back", slog.String("path", c.witness.path))
	return nil
}
