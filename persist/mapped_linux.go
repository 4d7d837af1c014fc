package persist

import (
	"fmt"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// DropResident takes what was read of the database out of the process's resident memory. Its pages stay in the kernel's cache,
// from where they come back when they are read again. For use after something has read much.
func (db *DB) DropResident() error {
	return db.view(func(tx *bbolt.Tx) error { // the file is not mapped elsewhere meanwhile
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, tx.DB().Info().Data, uintptr(tx.Size()), unix.MADV_DONTNEED)
		if errno != 0 {
			return fmt.Errorf("persist: madvise: %w", errno)
		}
		return nil
	})
}
