package copytree

import (
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// openSource takes hold of what source names, one component at a time, and of no symbolic link. It needs no right but
// to pass through the directories on the way. The file cannot be read: see held.
func openSource(source string) (*os.File, error) {
	at, err := os.OpenFile("/", unix.O_PATH, 0)
	if err != nil {
		return nil, unreadable("/", err, hintAccess)
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(source, "/"), "/") {
		// For the source / there is one name, "", which is / again.
		next, err := os.OpenFile(held(at)+"/"+name, unix.O_PATH|unix.O_NOFOLLOW, 0)
		at.Close()
		if err != nil {
			return nil, unreadable(source, err, hintAccess)
		}
		at = next
		info, err := at.Stat()
		if err == nil && info.Mode().Type() == fs.ModeSymlink {
			err = refuse(ErrSourceSymlink, "%s is or goes through a symbolic link; write where it leads instead", shown(source))
		} else if err != nil {
			err = unreadable(source, err, hintAgain)
		}
		if err != nil {
			at.Close()
			return nil, err
		}
	}
	return at, nil
}

// held is a path to the very file or directory that f is open on, wherever that is by now.
func held(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
