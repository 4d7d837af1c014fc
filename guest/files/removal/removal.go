// Package removal removes what a sandbox has made, however deep it lies. os.RemoveAll keeps a file open for each directory on the way
// down, and a sandbox can make more of these in one another than a process may have files. It is in agbox-init, so without fmt.
package removal

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"github.com/agbox-dev/agbox/guest/kernel"
)

const (
	// maxOpen is how many directories of a tree are open at a time; what lies deeper is moved up first.
	maxOpen = 64
	// atOnce are the names that are read of a directory before they are removed.
	atOnce = 1024
)

// Tree removes a directory with all that is in it, which nobody writes to any more. One that is not there is no error.
func Tree(path string) error {
	if err := Content(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return os.Remove(path)
}

// Content removes all that is in a directory, which itself stays; path is no link.
func Content(path string) error {
	const workingDirectory = -100 // AT_FDCWD
	top, err := open(workingDirectory, path)
	if err != nil {
		return err
	}
	r := removal{top: top, name: path}
	return errors.Join(r.empty(top, 0), top.Close())
}

type removal struct {
	top   *os.File
	name  string
	moved int
}

func open(at int, name string) (*os.File, error) {
	fd, err := syscall.Openat(at, name, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
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
		names, err := dir.Readdirnames(atOnce)
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		for _, name := range names {
			if err := r.remove(dir, name, depth); err != nil {
				return &fs.PathError{Op: "remove what is in", Path: r.name, Err: err}
			}
		}
	}
}

func (r *removal) remove(dir *os.File, name string, depth int) error {
	at := int(dir.Fd())
	if err := kernel.Unlink(at, name, false); err == nil || err == syscall.ENOENT {
		return nil
	} else if err != syscall.EISDIR && err != syscall.EPERM {
		return err
	}
	if kernel.Unlink(at, name, true) == nil {
		return nil
	}
	if depth >= maxOpen {
		for {
			r.moved++
			err := syscall.Renameat(at, name, int(r.top.Fd()), "deep-"+strconv.Itoa(r.moved))
			switch err {
			case syscall.EEXIST, syscall.ENOTEMPTY, syscall.ENOTDIR: // there is another one, and not an empty directory
			default:
				return err
			}
		}
	}
	inner, err := open(at, name)
	if err != nil {
		return err
	}
	if err := errors.Join(r.empty(inner, depth+1), inner.Close()); err != nil {
		return err
	}
	return kernel.Unlink(at, name, true)
}
