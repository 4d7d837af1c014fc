package sdk

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// inotify watches each file for writes and its directory for the file's appearance.
type inotify struct {
	watch *watch
	file  *os.File
	paths map[uint32]string // watch descriptor to file or directory
}

// notify starts to wake by inotify.
func (w *watch) notify() (stop func(), err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	n := &inotify{watch: w, file: os.NewFile(uintptr(fd), "inotify"), paths: map[uint32]string{}}
	for path := range w.wakes {
		if err := n.add(filepath.Dir(path), unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR); err != nil {
			n.file.Close()
			return nil, err
		}
	}
	for path := range w.wakes {
		n.appeared(path)
	}
	var group sync.WaitGroup
	group.Go(n.read)
	return func() {
		n.file.Close()
		group.Wait()
	}, nil
}

// add goes through SyscallConn so that a close meanwhile cannot hand the number to someone else.
func (n *inotify) add(path string, mask uint32) error {
	conn, err := n.file.SyscallConn()
	if err != nil {
		return err
	}
	var wd int
	failed := conn.Control(func(fd uintptr) { wd, err = unix.InotifyAddWatch(int(fd), path, mask) })
	if failed != nil {
		return failed
	}
	if err == nil {
		n.paths[uint32(wd)] = path
	}
	return err
}

// appeared watches the file, if it is there, and wakes its reader, who may have missed some of it.
func (n *inotify) appeared(path string) {
	_ = n.add(path, unix.IN_MODIFY|unix.IN_DONT_FOLLOW) // absent: the directory will tell
	n.watch.wake(path)
}

func (n *inotify) read() {
	buf := make([]byte, 16<<10)
	for {
		size, err := n.file.Read(buf)
		if err != nil {
			return // closed
		}
		for b := buf[:size]; len(b) >= unix.SizeofInotifyEvent; {
			wd, mask := binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint32(b[4:])
			end := unix.SizeofInotifyEvent + binary.NativeEndian.Uint32(b[12:])
			name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:end]), "\x00")
			b = b[end:]
			n.event(n.paths[wd], mask, name)
		}
	}
}

func (n *inotify) event(path string, mask uint32, name string) {
	switch {
	case mask&unix.IN_Q_OVERFLOW != 0:
		for path := range n.watch.wakes {
			n.appeared(path)
		}
	case mask&unix.IN_MODIFY != 0:
		n.watch.wake(path)
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		if path = filepath.Join(path, name); n.watch.wakes[path] != nil {
			n.appeared(path)
		}
	}
}
