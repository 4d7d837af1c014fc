package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// hostLock is held for as long as the daemon runs; the kernel lets go of it when the process ends, however.
type hostLock struct{ file *os.File }

// lockHost takes the lock and writes our pid into it. It fails when another agboxd has it, naming that one's pid.
func lockHost(path string) (*hostLock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the runtime directory: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the host lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer file.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("cannot take the host lock %s: %w", path, err)
		}
		holder, _ := os.ReadFile(path)
		return nil, fmt.Errorf("another agboxd is running with pid %s, which holds %s: use it, or stop it first",
			strings.TrimSpace(string(holder)), path)
	}
	err = errors.Join(file.Truncate(0), writeAt(file, fmt.Sprintln(os.Getpid())))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot write the host lock: %w", err), file.Close())
	}
	return &hostLock{file}, nil
}

// check takes the lock anew where somebody has removed its file, and reports whether that was so.
func (l *hostLock) check() (made bool, err error) {
	ours, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	if there, err := os.Lstat(l.file.Name()); err == nil && os.SameFile(there, ours) {
		return false, nil
	}
	next, err := lockHost(l.file.Name())
	if err != nil {
		return false, err
	}
	err = l.file.Close()
	l.file = next.file
	return true, err
}

func writeAt(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

// release empties the lock file and lets go. The file stays: removing it would let two daemons lock two files.
func (l *hostLock) release() error { return errors.Join(l.file.Truncate(0), l.file.Close()) }
