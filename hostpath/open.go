// Package hostpath is about the paths of the daemon's host that sandboxes are given: what they name, whether that is still
// what was accepted, and whether a sandbox may have it.
//
// A path is looked at by descriptors and without following a symbolic link, since a sandbox may have made one: whoever
// may write to a directory decides what the names in it lead to.
package hostpath

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrLink: the path is, or goes through, a symbolic link.
var ErrLink = errors.New("hostpath: a symbolic link is in the path")

// Open takes hold of what path, clean and absolute, names, one component at a time and of no symbolic link. It needs no
// right but to pass through the directories on the way. The file cannot be read: see Held. The error is ErrLink or the
// kernel's.
func Open(path string) (*os.File, error) {
	at, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if err != nil || name == "" { // the path is /
			break
		}
		var next int
		next, err = unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(at)
		at = next
		if err == nil {
			err = refuseLink(at)
		}
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(at), path), nil
}

// refuseLink closes a descriptor of a symbolic link.
func refuseLink(fd int) error {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		err = ErrLink
	}
	if err != nil {
		unix.Close(fd)
	}
	return err
}

// Held is a path to the very file or directory that f is open on, wherever that is by now.
func Held(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
