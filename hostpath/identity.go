package hostpath

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// What a path can name, as HostFile.kind has it.
const (
	kindDirectory = "directory"
	kindFile      = "file"
	kindSocket    = "socket"
	kindOther     = "device or pipe"
)

// Identity tells one file of this host from every other one, those that had its path or its number before it included.
type Identity struct {
	Kind          string
	Device, Inode uint64
	// Born is when it was made, in nanoseconds since 1970; 0 where its file system does not tell.
	Born int64
}

// Identify returns what f is open on. Of a socket only the kind counts: whoever listens makes it anew each time.
func Identify(f *os.File) (Identity, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return Identity{}, err
	}
	id := Identity{Device: unix.Mkdev(st.Dev_major, st.Dev_minor), Inode: st.Ino}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFSOCK:
		return Identity{Kind: kindSocket}, nil
	case unix.S_IFDIR:
		id.Kind = kindDirectory
	case unix.S_IFREG:
		id.Kind = kindFile
	default:
		id.Kind = kindOther
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.Born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return id, nil
}

// Copied is what counts of the identity where the path's content is read once: a file may have been replaced meanwhile, as
// editors do when they save, and only has to be one still.
func (id Identity) Copied() Identity {
	if id.Kind == kindFile {
		return Identity{Kind: kindFile}
	}
	return id
}

// same reports whether both are one file. A file system hands out inode numbers again, and what it calls its device
// changes with a restart of the host. So the time of birth decides, which nobody can set; where there is none, the device.
func (id Identity) same(other Identity) bool {
	if id.Inode == 0 { // only the kind counts
		return id.Kind == other.Kind
	}
	return id.Kind == other.Kind && id.Inode == other.Inode && id.Born == other.Born && (id.Born != 0 || id.Device == other.Device)
}

// Message is the identity as it is kept in a spec; FromMessage reads it.
func (id Identity) Message() *agboxv1.HostFile {
	return &agboxv1.HostFile{Kind: id.Kind, Device: id.Device, Inode: id.Inode, Born: id.Born}
}

// FromMessage returns the zero Identity for nil.
func FromMessage(m *agboxv1.HostFile) Identity {
	return Identity{Kind: m.GetKind(), Device: m.GetDevice(), Inode: m.GetInode(), Born: m.GetBorn()}
}

// Changed is what Verify finds: the path does not lead to what was accepted. Its text is for a person.
type Changed struct {
	Path string
	// What has become of it, as the rest of a sentence.
	What string
}

func (c *Changed) Error() string { return fmt.Sprintf("%q %s", c.Path, c.What) }

// Verify returns what path names, held open, when that is what was accepted, and a *Changed otherwise. The zero Identity,
// of what was accepted before identities were kept, is everything that no symbolic link leads to.
func Verify(path string, accepted Identity) (*os.File, error) {
	f, err := Open(path)
	switch {
	case errors.Is(err, ErrLink):
		return nil, &Changed{path, "is or goes through a symbolic link now"}
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil, &Changed{path, "does not exist any more"}
	case err != nil:
		return nil, &Changed{path, fmt.Sprintf("cannot be looked at by the daemon: %v", err)}
	}
	if err := Confirm(f, path, accepted); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Confirm is Verify for what is open already.
func Confirm(f *os.File, path string, accepted Identity) error {
	found, err := Identify(f)
	switch {
	case err != nil:
		return &Changed{path, fmt.Sprintf("cannot be looked at by the daemon: %v", err)}
	case accepted == Identity{} || accepted.same(found):
		return nil
	case accepted.Kind != found.Kind:
		return &Changed{path, fmt.Sprintf("is a %s now, and was a %s", found.Kind, accepted.Kind)}
	}
	return &Changed{path, fmt.Sprintf("is another %s than the one that was accepted", found.Kind)}
}
