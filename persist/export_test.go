package persist

// WatchSyncs has seen called with each directory that is synced from now on, until undo.
func WatchSyncs(seen func(dir string)) (undo func()) {
	sync := syncDir
	syncDir = func(dir string) error { seen(dir); return sync(dir) }
	return func() { syncDir = sync }
}

// Transactions is how many the writer has begun.
func (db *DB) Transactions() int64 { return db.transactions.Load() }
