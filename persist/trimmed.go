package persist

import (
	"strings"

	"go.etcd.io/bbolt"
)

// TrimmedExec is an exec whose events are gone, and of which files may be left.
type TrimmedExec struct{ SandboxID, ExecID string }

// TrimmedExecs returns up to limit of them.
func (db *DB) TrimmedExecs(limit int) ([]TrimmedExec, error) {
	var list []TrimmedExec
	err := db.view(func(tx *bbolt.Tx) error {
		cursor := tx.Bucket(trimmedExecs).Cursor()
		for key, _ := cursor.First(); key != nil && len(list) < limit; key, _ = cursor.Next() {
			if sandboxID, execID, ok := strings.Cut(string(key), "/"); ok {
				list = append(list, TrimmedExec{sandboxID, execID})
			}
		}
		return nil
	})
	return list, err
}

// ForgetTrimmed says that nothing is left of these.
func (db *DB) ForgetTrimmed(list []TrimmedExec) error {
	return db.write("", func(tx *bbolt.Tx) error {
		for _, exec := range list {
			if err := tx.Bucket(trimmedExecs).Delete(trimmedKey(exec.SandboxID, exec.ExecID)); err != nil {
				return err
			}
		}
		return nil
	})
}

func trimmedKey(sandboxID, execID string) []byte { return []byte(sandboxID + "/" + execID) }
