package persist

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// PlaceFile writes a file of the given mode in place of whatever is at path, so that after a crash at any moment, and
// after a loss of power, path is what it was or holds all that write has written. It returns once that is on disk.
func PlaceFile(path string, mode os.FileMode, write func(io.Writer) error) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	err = write(temporary)
	if err == nil {
		err = errors.Join(temporary.Chmod(mode), temporary.Sync())
	}
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = rename(temporary.Name(), path)
	}
	if err != nil {
		return errors.Join(err, remove(temporary.Name()))
	}
	return nil
}

// rename returns once the new name would survive a loss of power.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

// syncDir is a variable for the test that sees to it that it is called.
var syncDir = func(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
