//go:build !linux

package persist

// LetGo does nothing here.
func (db *DB) LetGo() error { return nil }
