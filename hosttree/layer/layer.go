// Package layer reads what a sandbox changed in a copy-on-write mount, from the upper directory of an overlay, which the
// sandbox writes to meanwhile. Names, contents and times in there are its own; nothing of it is followed.
package layer

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrPrivilege: what an overlay notes down, and what other users wrote, only a privileged process reads.
	ErrPrivilege = errors.New("layer: it takes CAP_SYS_ADMIN and CAP_DAC_READ_SEARCH to read an overlay's upper directory")
	// ErrUnstable: a file was written to while it was read.
	ErrUnstable = errors.New("layer: a file changed while it was read")
	// ErrGone: the layer is not there.
	ErrGone = errors.New("layer: it does not exist")
)

// Layer is a copy-on-write mount on the host.
type Layer struct {
	// Lower is the host's directory or file, Upper what the sandbox has in its place.
	Lower, Upper string
	// Made is when the sandbox began to see Lower, by the clock of the file system that Upper is on.
	Made time.Time
}

// Kinds of changes.
const (
	Added   = "added"
	Changed = "changed"
	Removed = "removed"
)

// Types of files.
const (
	File      = "file"
	Directory = "directory"
	Symlink   = "symlink"
	FIFO      = "fifo"
	Socket    = "socket"
	Device    = "device"
)

// Change is one difference between what the host has and what the sandbox has. A change of owner or time alone is none, and
// neither is a file that was written with what it held before.
type Change struct {
	// Path is below the mount, any bytes but NUL; "." is the mount itself.
	Path string
	Kind string
	// Type is what the sandbox has there, or had on the host when it is removed; OldType is what the host has where that is
	// something else.
	Type, OldType string
	// Size is that of a file's content, or of a link's target, in bytes; Mode has permissions and setuid, setgid and sticky,
	// as in stat(2).
	Size    int64
	Mode    uint32
	ModTime time.Time
	// LinkTarget is where a symbolic link leads.
	LinkTarget string
	// Conflict: the host's file was changed since Made.
	Conflict bool
	// Problem says why the change cannot be taken, "" when it can.
	Problem string

	directory side // of the upper, which name is in
	name      string
	id        inode
	links     uint64
}

// inode tells files apart.
type inode struct{ dev, ino uint64 }

// Bounds on what is followed in one mount.
const (
	// maxDepth is how many directories deep a walk goes; a copy into a sandbox has the same bound.
	maxDepth = 255
	// namesAtOnce are read of a directory, and are in order. One with more is told in parts.
	namesAtOnce = 4096
	// maxLinks are the files with several links that are told apart from copies.
	maxLinks = 100_000
	// sparseSize is the length from which a file with holes is not read, whose length costs its writer nothing.
	sparseSize = 16 << 20
)

// Privileged returns ErrPrivilege in a process that would miss what an overlay notes down.
func Privileged() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return errors.Join(ErrPrivilege, err)
	}
	const needed = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_DAC_READ_SEARCH
	if sets[0].Effective&needed != needed {
		return ErrPrivilege
	}
	return nil
}

func typeOf(st *unix.Stat_t) string {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Directory
	case unix.S_IFLNK:
		return Symlink
	case unix.S_IFIFO:
		return FIFO
	case unix.S_IFSOCK:
		return Socket
	}
	return Device
}

// whiteout reports whether st is the mark of a removal.
func whiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

func changedAt(st *unix.Stat_t) time.Time  { return time.Unix(st.Ctim.Unix()) }
func modifiedAt(st *unix.Stat_t) time.Time { return time.Unix(st.Mtim.Unix()) }
