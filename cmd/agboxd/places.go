package main

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// places tells of files that come to and go from directories, and of nothing that is done to a file: the database is written
// a dozen times for each command that runs.
type places struct{ inotify *os.File }

const placeEvents = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF

func newPlaces() (*places, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	return &places{os.NewFile(uintptr(fd), "inotify")}, nil
}

// add has a directory watched, which may be watched already.
func (p *places) add(dir string) error {
	raw, err := p.inotify.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { _, failed = unix.InotifyAddWatch(int(fd), dir, placeEvents|unix.IN_ONLYDIR) })
	if err == nil && failed != nil {
		err = &os.PathError{Op: "watch", Path: dir, Err: failed}
	}
	return err
}

// next waits for something to happen and returns the names of the files that it happened to. One without a name is a
// directory itself, or more than was kept.
func (p *places) next() (names []string, err error) {
	var buf [16 << 10]byte
	n, err := p.inotify.Read(buf[:])
	if err != nil {
		return nil, err
	}
	for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
		event := (*unix.InotifyEvent)(unsafe.Pointer(&rest[0]))
		end := unix.SizeofInotifyEvent + int(event.Len)
		names = append(names, unix.ByteSliceToString(rest[unix.SizeofInotifyEvent:end]))
		rest = rest[end:]
	}
	return names, nil
}

// close ends a next that waits.
func (p *places) close() error { return p.inotify.Close() }
