package persist

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"go.etcd.io/bbolt"
)

// verify reads every page of an existing database that is in use, and fails with ErrCorrupt where one is not what it
// should be, is reached twice, or lies beyond the end of the file, and with a *Mismatch where the database is not the one
// that w saw last; a w of nil saw none. It comes before the database is opened for writing because that reads
// the pages in a goroutine of its own, whose panic would end the process with a stack instead of an answer.
func verify(path string, w *Witness) (err error) {
	if w == nil {
		w = &Witness{}
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		// There is nothing to read: opening it makes it, or tells why not.
		lost := w.compare(Identity{}) != ""
		switch {
		case lost && errors.Is(err, os.ErrNotExist):
			return &Mismatch{Path: path, What: "is not there"}
		case lost && err == nil && info.Mode().IsRegular():
			return &Mismatch{Path: path, What: "is empty"}
		}
		return nil
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer catchDamage(path, &err)
	bolt, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, ReadOnly: true})
	if err != nil && strings.Contains(err.Error(), "file size too small") { // bbolt has no sentinel for it
		return corrupt(path, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bolt.Close()) }()
	return bolt.View(func(tx *bbolt.Tx) error {
		if info, err := os.Stat(path); err != nil {
			return err
		} else if tx.Size() > info.Size() {
			return corrupt(path, fmt.Errorf("it has %d bytes, which is less than the %d in use", info.Size(), tx.Size()))
		}
		err := tx.ForEach(func(_ []byte, bucket *bbolt.Bucket) error {
			var last []byte
			return bucket.ForEach(func(key, _ []byte) error {
				if bytes.Compare(last, key) >= 0 {
					return corrupt(path, fmt.Errorf("key %x follows %x", key, last))
				}
				last = key
				return nil
			})
		})
		if what := w.compare(readIdentity(tx)); err == nil && what != "" {
			return &Mismatch{Path: path, What: what, Known: knownSandboxes(tx)}
		}
		return err
	})
}

// catchDamage, deferred, turns what a damaged file does to its reader into ErrCorrupt: bbolt panics on a page that is
// not what it should be, and the kernel raises a fault where the disk cannot give what is mapped.
func catchDamage(path string, err *error) {
	if reason := recover(); reason != nil {
		*err = corrupt(path, fmt.Errorf("%v", reason))
	}
}
