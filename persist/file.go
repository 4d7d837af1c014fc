package persist

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// PlaceFile writes a file of the given mode in place of whatever is at path, so that after a crash at any moment, and
// after a loss of power, path is what it was or holds all that write has written. It returns once that is on disk.
func PlaceFile(path string, mode os.FileMode, write func(io.Writer) error) error {
	temporary, err := beside(path)
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

// beside makes a file that Sweep of path knows.
func beside(path string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
}

// unnamed makes such a file without a name: it is gone once it is closed.
func unnamed(path string) (*os.File, error) {
	file, err := beside(path)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Sweep removes what a PlaceFile of path has left whose process was killed. None may be under way.
func Sweep(path string) error {
	entries, err := os.ReadDir(filepath.Dir(path))
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "."+filepath.Base(path)+"-") {
			err = errors.Join(err, remove(filepath.Join(filepath.Dir(path), entry.Name())))
		}
	}
	return err
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
