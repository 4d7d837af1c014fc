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
// should be, is reached twice, or lies beyond the end of the file. It comes before the database is opened for writing because that reads
// the pages in a goroutine of its own, whose panic would end the process with a stack instead of an answer.
func verify(path string) (err error) {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil // there is nothing to read: opening it makes it, or tells why not
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
		return tx.ForEach(func(_ []byte, bucket *bbolt.Bucket) error {
			var last []byte
			return bucket.ForEach(func(key, _ []byte) error {
				if bytes.Compare(last, key) >= 0 {
					return corrupt(path, fmt.Errorf("key %x follows %x", key, last))
				}
				last = key
				return nil
			})
		})
	})
}

// catchDamage, deferred, turns what a damaged file does to its reader into ErrCorrupt: bbolt panics on a page that is
// not what it should be, and the kernel raises a fault where the disk cannot give what is mapped.
func catchDamage(path string, err *error) {
	if reason := recover(); reason != nil {
		*err = corrupt(path, fmt.Errorf("%v", reason))
	}
}
