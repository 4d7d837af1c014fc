package persist

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// lockWait bounds how long Open waits for another process to let go of the file: long enough for a daemon
// that is just ending, short enough for a person at a prompt.
const lockWait = 2 * time.Second

// DB is the open database. All methods may be called from any goroutine.
type DB struct {
	bolt    atomic.Pointer[bbolt.DB] // another one once the file was put back
	path    string
	log     *slog.Logger
	queue   chan *write
	closing chan struct{}
	written sync.WaitGroup
	close   sync.Once
	changes changes
	// spooling holds a token while a copy is made.
	spooling chan struct{}

	commits *committer
	// transactions counts those that were begun.
	transactions atomic.Int64
}

// committer is the writer: its goroutine alone uses what is in it, and Close after that has ended.
type committer struct {
	*DB
	witness *Witness // nil: there is none
	// generation is the newest one that is in the database.
	generation uint64
	// file is the database's own, which has to be at path.
	file os.FileInfo
	// unsynced: the directory may not have its name on disk.
	unsynced bool
	// moved is why changes are refused while another file is there, nil while none is.
	moved error
	// full: the last transaction found no room.
	full bool
}

// Option changes how Open opens a database.
type Option func(*options)

type options struct {
	witness *Witness
	accept  bool
	log     *slog.Logger
}

// WithWitness has Open fail with a *Mismatch, before it changes anything, when the database is not the one that w saw last,
// and keeps the witness up to date from then on. The database closes it. One witness is for one Open.
func WithWitness(w *Witness) Option { return func(o *options) { o.witness = w } }

// AcceptMismatch takes the database as it is, for somebody who has said so.
func AcceptMismatch() Option { return func(o *options) { o.accept = true } }

// WithLog says where it is told what happens to the file of a database that is open.
func WithLog(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// Open opens or creates the database at path with mode 0600 and starts its writer. It fails with ErrLocked
// when another process holds it, with ErrCorrupt when the file cannot be read and with ErrNoSpace when its disk is
// full. Every error names the path and what to do.
//
// A file that is mostly free pages is compacted first.
func Open(path string, change ...Option) (db *DB, err error) {
	defer catchDamage(path, &err)
	with := options{log: slog.New(slog.DiscardHandler)}
	for _, option := range change {
		option(&with)
	}
	if err := verify(path, with.witness); err != nil && !(with.accept && errors.Is(err, ErrMismatch)) {
		return nil, openError(path, err)
	}
	_, found := os.Stat(path)
	bolt, err := openFile(path)
	if err != nil && noSpace(err) && errors.Is(found, os.ErrNotExist) {
		err = errors.Join(err, os.Remove(path)) // or what could be written of it would count as damaged
	}
	if err != nil {
		return nil, openError(path, err)
	}
	if err := errors.Join(Sweep(path), Sweep(path+rescued), os.Chmod(path, 0o600), bolt.Update(createBuckets)); err != nil {
		return nil, openError(path, errors.Join(err, bolt.Close()))
	}
	if bolt, err = compact(bolt, path); err != nil {
		return nil, openError(path, err)
	}
	db = &DB{path: path, log: with.log, queue: make(chan *write), closing: make(chan struct{}), spooling: make(chan struct{}, 1)}
	c := &committer{DB: db, witness: with.witness}
	if c.file, err = os.Stat(path); err == nil && c.witness != nil {
		c.generation, err = identify(bolt, c.witness)
	}
	if err != nil {
		return nil, openError(path, errors.Join(err, bolt.Close()))
	}
	db.bolt.Store(bolt)
	db.commits = c
	db.changes.waiting, db.changes.tails, db.changes.feed.created = map[string]chan struct{}{}, map[string]tail{}, map[string]uint64{}
	db.written.Add(1)
	go c.writeLoop()
	return db, nil
}

func openFile(path string) (*bbolt.DB, error) {
	return bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:        lockWait,
		FreelistType:   bbolt.FreelistMapType,
		NoFreelistSync: true,
	})
}

func openError(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%w: %s is held by another process: is agboxd already running?", ErrLocked, path)
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrMismatch):
		return err
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return corrupt(path, err)
	case noSpace(err):
		return fmt.Errorf("%w: %s: %w: free space on its disk", ErrNoSpace, path, err)
	case errors.Is(err, syscall.EROFS), errors.Is(err, os.ErrPermission):
		return fmt.Errorf("persist: cannot write %s: %w: make its directory writable, or set XDG_DATA_HOME to another", path, err)
	default:
		return fmt.Errorf("persist: cannot open %s: %w: make it a file that agboxd can read and write, or set XDG_DATA_HOME to another directory", path, err)
	}
}

func noSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

func corrupt(path string, cause error) error {
	return fmt.Errorf("%w: %s: %w: restore a copy of it, or move it away and start agboxd --adopt, "+
		"which takes the sandboxes that are there into a new one", ErrCorrupt, path, cause)
}

// Close records what was already handed in, wakes every reader that waits for a change, and closes the
// file. Later writes fail with ErrClosed. It may be called more than once.
func (db *DB) Close() error {
	var err error
	db.close.Do(func() {
		close(db.closing)
		db.written.Wait()
		db.changes.wakeAll()
		err = db.commits.end()
	})
	return err
}

// end closes the file. Its generation grows once more, so that a copy that was made meanwhile is an older one.
func (c *committer) end() error {
	misplaced := c.inPlace()
	bolt := c.bolt.Load()
	if c.witness == nil {
		return errors.Join(misplaced, bolt.Close())
	}
	if misplaced != nil { // what is at its place, or was saved, does not get any newer
		return errors.Join(misplaced, bolt.Close(), c.witness.close())
	}
	if err := bolt.Update(c.advance); err != nil {
		c.log.Warn("a copy of the database from before now will not be told from it", slog.Any("error", c.writeError(err)))
	} else if err := c.testify(); err != nil {
		c.log.Warn("a copy of the database from before now will not be told from it", slog.Any("error", err))
	}
	return errors.Join(bolt.Close(), c.witness.close())
}

func (db *DB) view(fn func(*bbolt.Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer catchDamage(db.path, &err)
	for {
		bolt := db.bolt.Load()
		err = bolt.View(fn)
		if !errors.Is(err, bolterrors.ErrDatabaseNotOpen) || db.bolt.Load() == bolt {
			break
		}
	}
	switch {
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		return ErrClosed
	case errors.Is(err, ErrCorrupt):
		return corrupt(db.path, err)
	}
	return err
}

func (db *DB) writeError(err error) error {
	switch {
	case errors.Is(err, ErrMoved):
		return err
	case noSpace(err):
		return fmt.Errorf("%w: %s: %w: free space on its disk and ask again, nothing was recorded", ErrNoSpace, db.path, err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %s: %w: make its file system writable again (the kernel's log tells why it is not), "+
			"restart agboxd and ask again, nothing was recorded", ErrNoSpace, db.path, err)
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		return ErrClosed
	default:
		return fmt.Errorf("persist: write failed: %s: %w", db.path, err)
	}
}
