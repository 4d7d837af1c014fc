package apply

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// hostTree is the source of a copy-on-write mount while changes are applied to it. Every step begins at its descriptor and
// goes through no link and no other mount.
type hostTree struct {
	root *os.File
	// name is the file's in root where the mount is one of a file, else "".
	name     string
	listedAt time.Time
	asRoot   bool
	// written are the files that were replaced or made; a hard link may lead to them only.
	written map[string]bool
	// directories get their permissions when all is in them.
	directories []*Change
}

// maxHostDepth is how deep a directory is looked through before it is removed.
const maxHostDepth = 256

func openSource(mount *Mount) (*hostTree, error) {
	t := &hostTree{listedAt: mount.ListedAt, asRoot: os.Geteuid() == 0, written: map[string]bool{}}
	source := mount.Source
	var st unix.Stat_t
	if err := unix.Lstat(source, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		source, t.name = path.Dir(source), path.Base(source)
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, source, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil, fmt.Errorf("%s, the source of %s, cannot be opened on this host: %w", mount.Source, mount.Target, err)
	}
	t.root = os.NewFile(uintptr(fd), source)
	return t, nil
}

func (t *hostTree) close() { t.root.Close() }

// spot is a name in a directory that is open.
type spot struct {
	directory *os.File
	name      string
}

func (s spot) fd() int { return int(s.directory.Fd()) }

// spot opens the directory that p is in; "." is the source itself, in which case the name is ".", or the file's.
func (t *hostTree) spot(p string) (spot, error) {
	if p == "." && t.name != "" {
		p = t.name
	}
	fd, err := unix.Openat2(int(t.root.Fd()), path.Dir(p), &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV})
	if err != nil {
		return spot{}, err
	}
	return spot{os.NewFile(uintptr(fd), path.Dir(p)), path.Base(p)}, nil
}

// stat returns nil when nothing is there.
func (s spot) stat() (*unix.Stat_t, error) {
	st := &unix.Stat_t{}
	err := unix.Fstatat(s.fd(), s.name, st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return nil, nil
	}
	return st, err
}

// moved says that the host's file is not what it was when the changes were listed, "" when it is.
func (t *hostTree) moved(at spot, c *Change, options Options) (reason string, was *unix.Stat_t, err error) {
	was, err = at.stat()
	switch {
	case err != nil:
		return "", nil, err
	case was == nil && c.Kind == Added:
		return "", nil, nil
	case was == nil && c.Kind == Removed: // it is as it should be
		return "", nil, nil
	case options.Overwrite:
		return "", was, nil
	case was == nil:
		return "the host has it no longer", nil, nil
	case c.Kind == Added:
		return "the host has it, too, since it was listed", was, nil
	}
	old := c.OldType
	if old == "" {
		old = c.Type
	}
	if kindOf(was) != old {
		return "the host has made something else of it since it was listed", was, nil
	}
	newer, err := t.newer(at, was, c.Kind == Changed && old == Directory && c.OldType == "", 0)
	if newer {
		return "the host changed it since it was listed", was, err
	}
	return "", was, err
}

// newer reports whether a file, or anything in a directory, was changed since the list. self: only the directory's own
// attributes count; names that come and go in it, as by our own hand, move both of its times.
func (t *hostTree) newer(at spot, st *unix.Stat_t, self bool, depth int) (bool, error) {
	if self && st.Ctim == st.Mtim {
		return false, nil
	}
	if !time.Unix(st.Ctim.Unix()).Before(t.listedAt) {
		return true, nil
	}
	if self || kindOf(st) != Directory {
		return false, nil
	}
	return t.within(at, depth, func(in spot) (bool, error) {
		st, err := in.stat()
		if err != nil || st == nil {
			return false, err
		}
		return t.newer(in, st, false, depth+1)
	})
}

// within calls do for what is in a directory, until it says so or fails.
func (t *hostTree) within(at spot, depth int, do func(spot) (bool, error)) (bool, error) {
	if depth >= maxHostDepth {
		return true, errTooDeep
	}
	fd, err := unix.Openat2(at.fd(), at.name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV})
	if err != nil {
		return true, err
	}
	directory := os.NewFile(uintptr(fd), at.name)
	defer directory.Close()
	names, err := directory.Readdirnames(-1)
	if err != nil {
		return true, err
	}
	for _, name := range names {
		if stop, err := do(spot{directory, name}); stop || err != nil {
			return stop, err
		}
	}
	return false, nil
}

func kindOf(st *unix.Stat_t) string {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return Regular
	case unix.S_IFDIR:
		return Directory
	case unix.S_IFLNK:
		return Symlink
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "device"
}

// write makes one change of the tar stream, or says why it is left.
func (t *hostTree) write(c *Change, header *tar.Header, content io.Reader, options Options) (left string, err error) {
	at, err := t.spot(c.Path)
	if err != nil {
		return "", err
	}
	defer at.directory.Close()
	left, was, err := t.moved(at, c, options)
	if left != "" || err != nil {
		return left, err
	}
	if c.Type == Directory {
		return t.makeDirectory(at, c, was)
	}
	fresh := spot{at.directory, ".agbox-" + uuid.NewString()}
	defer unix.Unlinkat(fresh.fd(), fresh.name, 0) // does nothing once it has its name
	switch header.Typeflag {
	case tar.TypeSymlink:
		err = unix.Symlinkat(header.Linkname, fresh.fd(), fresh.name)
	case tar.TypeLink:
		if !t.written[header.Linkname] {
			return fmt.Sprintf("it is the same file as %q, which is left", header.Linkname), nil
		}
		err = t.link(header.Linkname, fresh)
	default:
		err = t.fill(fresh, c, header, content, was)
	}
	if err != nil {
		return "", err
	}
	// Writing may have taken a while.
	if left, was, err = t.moved(at, c, options); left != "" || err != nil {
		return left, err
	}
	if was != nil && kindOf(was) == Directory {
		if err := t.removeAll(at, 0); err != nil {
			return "", err
		}
		was = nil
	}
	flags := uint(0)
	if was == nil {
		flags = unix.RENAME_NOREPLACE
	}
	err = unix.Renameat2(fresh.fd(), fresh.name, at.fd(), at.name, flags)
	if errors.Is(err, unix.EEXIST) {
		return "the host has it, too, since it was listed", nil
	}
	if err == nil && c.Type == Regular {
		t.written[c.Path] = true
	}
	return "", err
}

// leftBy says in which way of the host an error is, that keeps one change from it and no other; "" when it is another one.
func leftBy(err error) string {
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return "on the host the way to it leads through a link, or to another file system"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return "the host has no directory for it"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return "the host does not permit it: " + err.Error()
	case errors.Is(err, errTooDeep):
		return err.Error()
	}
	return ""
}

var errTooDeep = fmt.Errorf("on the host it is more than %d directories deep", maxHostDepth)

func (t *hostTree) fill(fresh spot, c *Change, header *tar.Header, content io.Reader, was *unix.Stat_t) error {
	fd, err := unix.Openat(fresh.fd(), fresh.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), fresh.name)
	_, err = io.Copy(file, content)
	if err == nil {
		err = t.own(file, fresh, was)
	}
	if err == nil {
		err = file.Chmod(c.Mode & fs.ModePerm)
	}
	if err == nil {
		modified := unix.NsecToTimespec(header.ModTime.UnixNano())
		err = unix.UtimesNanoAt(fresh.fd(), fresh.name, []unix.Timespec{modified, modified}, unix.AT_SYMLINK_NOFOLLOW)
	}
	return errors.Join(err, file.Close())
}

// own has what root makes for somebody belong to the owner of the file before, or of the directory.
func (t *hostTree) own(file *os.File, in spot, was *unix.Stat_t) error {
	if !t.asRoot {
		return nil
	}
	if was == nil {
		was = &unix.Stat_t{}
		if err := unix.Fstat(in.fd(), was); err != nil {
			return err
		}
	}
	return file.Chown(int(was.Uid), int(was.Gid))
}

func (t *hostTree) link(to string, fresh spot) error {
	from, err := t.spot(to)
	if err != nil {
		return err
	}
	defer from.directory.Close()
	return unix.Linkat(from.fd(), from.name, fresh.fd(), fresh.name, 0)
}

func (t *hostTree) makeDirectory(at spot, c *Change, was *unix.Stat_t) (left string, err error) {
	if was != nil && kindOf(was) != Directory {
		if err := unix.Unlinkat(at.fd(), at.name, 0); err != nil {
			return "", err
		}
		was = nil
	}
	if was == nil {
		if err := unix.Mkdirat(at.fd(), at.name, 0o700); errors.Is(err, unix.EEXIST) {
			return "the host has it, too, since it was listed", nil
		} else if err != nil {
			return "", err
		}
		directory, err := openDirectory(at)
		if err != nil {
			return "", err
		}
		defer directory.Close()
		if err := t.own(directory, at, nil); err != nil {
			return "", err
		}
	}
	t.directories = append(t.directories, c)
	return "", nil
}

func openDirectory(at spot) (*os.File, error) {
	fd, err := unix.Openat(at.fd(), at.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), at.name), nil
}

// finish gives directories their permissions, and tells of those where that failed. What they had of setgid and sticky they
// keep.
func (t *hostTree) finish(failed func(*Change, error)) {
	for _, c := range slices.Backward(t.directories) {
		if err := t.permit(c); err != nil {
			failed(c, err)
		}
	}
}

func (t *hostTree) permit(c *Change) error {
	at, err := t.spot(c.Path)
	if err != nil {
		return err
	}
	defer at.directory.Close()
	directory, err := openDirectory(at)
	if err != nil {
		return err
	}
	defer directory.Close()
	info, err := directory.Stat()
	if err != nil {
		return err
	}
	return directory.Chmod(c.Mode&fs.ModePerm | info.Mode()&(fs.ModeSetgid|fs.ModeSticky))
}

// remove removes what the sandbox removed, or says why it is left.
func (t *hostTree) remove(c *Change, options Options) (left string) {
	at, err := t.spot(c.Path)
	if errors.Is(err, unix.ENOENT) {
		return ""
	}
	if err == nil {
		defer at.directory.Close()
		var was *unix.Stat_t
		if left, was, err = t.moved(at, c, options); left != "" || err == nil && was == nil {
			return left
		}
	}
	if err == nil {
		err = t.removeAll(at, 0)
	}
	if err != nil {
		return cmp.Or(leftBy(err), err.Error())
	}
	return ""
}

// removeAll removes a file, or a directory with all that is in it.
func (t *hostTree) removeAll(at spot, depth int) error {
	err := unix.Unlinkat(at.fd(), at.name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	} else if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	if _, err := t.within(at, depth, func(in spot) (bool, error) { return false, t.removeAll(in, depth+1) }); err != nil {
		return err
	}
	return unix.Unlinkat(at.fd(), at.name, unix.AT_REMOVEDIR)
}
