// Package execlog reads the files that commands write their output to, while they are written.
package execlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Log is one such file, which may not be there yet. It belongs to one goroutine. Close must follow.
type Log struct {
	path string
	file *os.File
}

// New returns the log at path. Nothing is opened before it is asked for.
func New(path string) *Log { return &Log{path: path} }

// Size returns how many bytes there are now, 0 where the file is not there yet. It fails with ErrNotRegular for what
// is no file, a symbolic link included: a command may have put that in the file's place.
func (l *Log) Size() (int64, error) {
	if l.file == nil {
		err := l.open()
		if errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		} else if err != nil {
			return 0, err
		}
	}
	info, err := l.file.Stat()
	if err != nil {
		return 0, fmt.Errorf("execlog: cannot tell the size of %s: %w", l.path, err)
	}
	return info.Size(), nil
}

// Replaced tells whether the file that Size has met is no longer the one at its path.
func (l *Log) Replaced() (bool, error) {
	if l.file == nil {
		return false, nil
	}
	info, err := l.file.Stat()
	if err != nil {
		return false, fmt.Errorf("execlog: cannot look at %s: %w", l.path, err)
	}
	now, err := os.Lstat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	} else if err != nil {
		return false, fmt.Errorf("execlog: cannot look at %s: %w", l.path, err)
	}
	return !os.SameFile(info, now), nil
}

// Opened tells whether Size has met the file.
func (l *Log) Opened() bool { return l.file != nil }

// Read fills data from offset on, and returns how much of it; less than all only where the file ends. Size must have
// met the file.
func (l *Log) Read(data []byte, offset int64) (int, error) {
	n, err := l.file.ReadAt(data, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("execlog: cannot read %s: %w", l.path, err)
	}
	return n, nil
}

// Close lets go of the file.
func (l *Log) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// open does not wait for the other end of a pipe.
func (l *Log) open() error {
	file, err := os.OpenFile(l.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return fmt.Errorf("%w: %s is a symbolic link: remove it", ErrNotRegular, l.path)
	} else if err != nil {
		return fmt.Errorf("execlog: cannot open the log: %w", err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is %v: remove it", ErrNotRegular, l.path, info.Mode().Type())
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.file = file
	return nil
}
