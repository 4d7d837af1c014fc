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
func (c *committer) commit(group []*write) {
	group = c.refuseUncovered(group)
	if err := c.ready(); err != nil {
		c.fail(group, err)
		return
	}
	for len(group) > 0 {
		crashPoint()
		broken, err := c.try(group)
		crashPoint()
		switch {
		case broken != nil:
			c.fail([]*write{broken}, err)
			group = slices.DeleteFunc(group, func(w *write) bool { return w == broken })
		case err != nil:
			c.full = noSpace(err) || errors.Is(err, syscall.EROFS)
			c.fail(group, err)
			return
		default:
			c.full = false
			c.succeed(group)
			return
		}
	}
}

// try returns the write that cannot be stored, if it was that.
func (c *committer) try(group []*write) (broken *write, err error) {
	c.transactions.Add(1)
	generation := c.generation
	err = c.bolt.Load().Update(func(tx *bbolt.Tx) error {
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
			return c.advance(tx)
		}
		return nil
	})
	if err != nil {
		c.generation = generation
	}
	return broken, err
}

func (c *committer) fail(group []*write, err error) {
	err = c.writeError(err)
	for _, w := range group {
		w.err = err
		close(w.done)
	}
}

// succeed answers those whose writes are durable. Who has created a sandbox waits for the witness, too.
func (c *committer) succeed(group []*write) {
	for _, covered := range []bool{false, true} {
		if covered {
			if err := c.testify(); err != nil { // the next create tries again, and is refused
				c.log.Error("audit: the instance file does not say that the database has a new sandbox", "error", err)
			}
		}
		for _, w := range group {
			if w.created == covered {
				c.answer(w)
			}
		}
	}
}

func (c *committer) answer(w *write) {
	if w.err == nil && w.changed != "" {
		c.changes.wake(w.changed, w.created, w.recorded)
	}
	close(w.done)
}

// refuseUncovered answers creates that could be lost without a trace, with a copy of the database, because the witness
// could not be written the last time and cannot be now.
func (c *committer) refuseUncovered(group []*write) []*write {
	err := c.testify()
	if err == nil {
		return group
	}
	return slices.DeleteFunc(group, func(w *write) bool {
		if w.creates {
			c.fail([]*write{w}, err)
		}
		return w.creates
	})
}

// probeSize is more than a transaction needs, in bytes.
const probeSize = 1 << 20

// ready reports why nothing can be recorded now. Where a disk was full it looks for room by itself: a transaction that
// fails for want of it has the whole file read.
func (c *committer) ready() error {
	if err := c.inPlace(); err != nil {
		return err
	}
	if !c.full {
		return nil
	}
	probe, err := unnamed(c.path)
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
func (c *committer) inPlace() error {
	info, err := os.Stat(c.path)
	if errors.Is(err, os.ErrNotExist) {
		if err := c.putBack(); err != nil {
			return fmt.Errorf("%w: %s was removed and cannot be put back: %w: make its directory writable, or save the data with agboxd backup",
				ErrMoved, c.path, err)
		}
		info, err = c.file, nil
	}
	if err == nil && os.SameFile(info, c.file) {
		if c.moved = nil; c.unsynced {
			err = syncDir(filepath.Dir(c.path))
			c.unsynced = err != nil
		}
		if err == nil {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %s cannot be looked at: %w", ErrMoved, c.path, err)
	}
	if c.moved == nil {
		c.moved = c.replaced()
		c.log.Error("audit: the database was replaced while agboxd runs: changes are refused", "error", c.moved)
	}
	return c.moved
}
