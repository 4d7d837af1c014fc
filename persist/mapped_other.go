//go:build !linux

package persist

// DropResident does nothing here.
func (db *DB) DropResident() error { return nil }
