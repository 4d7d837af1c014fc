package dockerrt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// maxOpenTree is how many directories of a tree are open at a time while it is removed; what lies deeper is moved up first.
	maxOpenTree = 64
	// removedAtOnce are the names that are read of a directory before they are removed.
	removedAtOnce = 1024
)

// removeTree is os.RemoveAll for what a sandbox has made and nobody writes to any more. That one keeps a file open for each
// directory on the way down, and a sandbox can make more of these in one another than the daemon may have files.
func removeTree(path string) error {
	top, err := openTree(unix.AT_FDCWD, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	r := removal{top: top, name: path}
	if err := errors.Join(r.empty(top, 0), top.Close()); err != nil {
		return err
	}
	return os.Remove(path)
}

type removal struct {
	top   *os.File
	name  string
	moved int
}

func openTree(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (r *removal) empty(dir *os.File, depth int) error {
	for {
		if _, err := dir.Seek(0, io.SeekStart); err != nil { // what was removed, or moved here, has changed the rest
			return err
		}
		names, err := dir.Readdirnames(removedAtOnce)
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		for _, name := range names {
			if err := r.remove(dir, name, depth); err != nil {
				return fmt.Errorf("cannot remove what is in %s: %w", r.name, err)
			}
		}
	}
}

func (r *removal) remove(dir *os.File, name string, depth int) error {
	at := int(dir.Fd())
	if err := unix.Unlinkat(at, name, 0); err == nil || err == unix.ENOENT {
		return nil
	} else if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	if unix.Unlinkat(at, name, unix.AT_REMOVEDIR) == nil {
		return nil
	}
	if depth >= maxOpenTree {
		for {
			r.moved++
			err := unix.Renameat2(at, name, int(r.top.Fd()), fmt.Sprintf("deep-%d", r.moved), unix.RENAME_NOREPLACE)
			if err != unix.EEXIST {
				return err
			}
		}
	}
	inner, err := openTree(at, name)
	if err != nil {
		return err
	}
	if err := errors.Join(r.empty(inner, depth+1), inner.Close()); err != nil {
		return err
	}
	return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
}
