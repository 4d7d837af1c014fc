package persist

import "errors"

// WatchSyncs has seen called before each directory is synced, which fails with its error, from now on until undo.
func WatchSyncs(seen func(dir string) error) (undo func()) {
	sync := syncDir
	syncDir = func(dir string) error { return errors.Join(seen(dir), sync(dir)) }
	return func() { syncDir = sync }
}

// Transactions is how many the writer has begun.
func (db *DB) Transactions() int64 { return db.transactions.Load() }
