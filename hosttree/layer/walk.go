package layer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// Walk tells every change, a directory before what is in it, until visit fails or ctx ends. What comes and goes meanwhile is
// told or not. It returns ErrPrivilege where this process cannot do it, and ErrGone when there is no layer. At most 512
// files are open at a time.
func (l Layer) Walk(ctx context.Context, visit func(*Change) error) error {
	if err := Privileged(); err != nil {
		return err
	}
	w := &walk{ctx: ctx, layer: l, visit: visit}
	err := w.root()
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

type walk struct {
	ctx   context.Context
	layer Layer
	visit func(*Change) error
}

// side is a directory of one of the two, nil where there is none.
type side struct{ *os.File }

func (s side) there() bool { return s.File != nil }

func (s side) close() {
	if s.there() {
		s.Close()
	}
}

// stat does not follow a link. It returns nil when nothing is there.
func (s side) stat(name string) (*unix.Stat_t, error) {
	if !s.there() {
		return nil, nil
	}
	st := &unix.Stat_t{}
	err := unix.Fstatat(int(s.Fd()), name, st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return nil, nil
	} else if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return st, nil
}

// open opens what is no link, without waiting for anybody.
func (s side) open(name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(s.Fd()), name, flags|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (s side) directory(name string) (side, error) {
	file, err := s.open(name, unix.O_DIRECTORY)
	return side{file}, err
}

func (w *walk) root() error {
	upper, err := openRoot(w.layer.Upper, 0)
	if err != nil {
		return err
	}
	defer upper.close()
	st, err := upper.stat(path.Base(w.layer.Upper))
	if err != nil || st == nil {
		return errors.Join(err, fs.ErrNotExist)
	}
	lower, err := openRoot(w.layer.Lower, unix.RESOLVE_NO_SYMLINKS)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	defer lower.close()
	was, err := lower.stat(path.Base(w.layer.Lower))
	if err != nil {
		return err
	}
	if typeOf(st) != Directory && !changedAt(st).After(w.layer.Made) { // a copy that nobody touched, whatever became of the source
		return nil
	}
	return w.compare(upper, lower, path.Base(w.layer.Upper), path.Base(w.layer.Lower), ".", st, was, false, 0)
}

// openRoot opens the directory that name is in.
func openRoot(name string, resolve uint64) (side, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path.Dir(name), &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolve})
	if err != nil {
		return side{}, &fs.PathError{Op: "open", Path: path.Dir(name), Err: err}
	}
	return side{os.NewFile(uintptr(fd), name)}, nil
}

// children tells the changes in a directory that both or one of the two have.
func (w *walk) children(upper, lower side, at string, opaque bool, depth int) error {
	err := names(upper.File, func(name string) error {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		st, err := upper.stat(name)
		if err != nil || st == nil { // it is gone again
			return err
		}
		was, err := lower.stat(name)
		if err != nil {
			return err
		}
		if whiteout(st) {
			return w.removed(lower, name, path.Join(at, name), was, depth)
		}
		return w.compare(upper, lower, name, name, path.Join(at, name), st, was, opaque, depth)
	})
	if err != nil || !opaque || !lower.there() {
		return err
	}
	return names(lower.File, func(name string) error {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		st, err := upper.stat(name)
		if err != nil || st != nil {
			return err
		}
		was, err := lower.stat(name)
		if err != nil {
			return err
		}
		return w.removed(lower, name, path.Join(at, name), was, depth)
	})
}

// names calls do for the names in a directory, sorted unless they are too many.
func names(dir *os.File, do func(string) error) error {
	for {
		some, err := dir.Readdirnames(namesAtOnce)
		slices.Sort(some)
		for _, name := range some {
			if err := do(name); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// removed tells that the sandbox has no longer what the host has.
func (w *walk) removed(lower side, name, at string, was *unix.Stat_t, depth int) error {
	if was == nil { // the host has it no longer, too
		return nil
	}
	conflict, err := w.touched(lower, name, was, depth)
	if err != nil {
		return err
	}
	return w.visit(&Change{Path: at, Kind: Removed, Type: typeOf(was), Size: sizeOf(was), Mode: was.Mode & 0o7777,
		ModTime: modifiedAt(was), Conflict: conflict})
}

// compare tells how what the sandbox has differs from what the host has, and from what is in it. opaque: nothing of the
// host's shows through in the directory that it is in.
func (w *walk) compare(upper, lower side, name, lowerName, at string, st, was *unix.Stat_t, opaque bool, depth int) error {
	c := &Change{Path: at, Type: typeOf(st), Size: sizeOf(st), Mode: st.Mode & 0o7777, ModTime: modifiedAt(st),
		directory: upper, name: name, id: inode{st.Dev, st.Ino}, links: uint64(st.Nlink)}
	var err error
	if c.Type == Symlink {
		if c.LinkTarget, err = upper.link(name); err != nil {
			return ignoreGone(err)
		}
	}
	switch {
	case was == nil:
		c.Kind = Added
		c.Conflict = at == "." || w.hostRemoved(upper, lower, name, c.Type)
	case typeOf(was) != c.Type:
		c.Kind, c.OldType = Changed, typeOf(was)
		c.Conflict, err = w.touched(lower, lowerName, was, depth)
	default:
		same := false
		if same, err = w.same(upper, lower, name, lowerName, st, was); err == nil && !same {
			c.Kind = Changed
			c.Conflict = w.newer(was)
		}
	}
	if err != nil {
		return ignoreGone(err)
	}
	if c.Kind != "" {
		c.Problem = problem(c, st, depth)
		if err := w.visit(c); err != nil {
			return err
		}
	}
	if c.Type != Directory || depth >= maxDepth {
		return nil
	}
	inner, err := upper.directory(name)
	if err != nil {
		return ignoreGone(err)
	}
	defer inner.close()
	if !opaque {
		opaque = noted(inner.File, "trusted.overlay.opaque") != nil
	}
	var below side
	if was != nil && typeOf(was) == Directory {
		if below, err = lower.directory(lowerName); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
			return err
		}
		defer below.close()
	}
	return w.children(inner, below, at, opaque, depth+1)
}

// problem says why a change cannot be taken over.
func problem(c *Change, st *unix.Stat_t, depth int) string {
	switch {
	case c.Type == FIFO, c.Type == Socket, c.Type == Device:
		return "it is a " + c.Type
	case c.Type == Directory && depth >= maxDepth:
		return fmt.Sprintf("it lies %d directories deep, and what is in it is not listed", maxDepth)
	case c.Type == File && st.Size > sparseSize && st.Blocks*512 < st.Size/4:
		return fmt.Sprintf("it is %d bytes long, of which %d are on the disk", st.Size, st.Blocks*512)
	}
	return ""
}

func sizeOf(st *unix.Stat_t) int64 {
	if t := typeOf(st); t != File && t != Symlink {
		return 0
	}
	return st.Size
}

// ignoreGone has what vanished since it was seen, or became something else, be as if it had not been there.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// noted returns an extended attribute, nil when there is none.
func noted(file *os.File, name string) []byte {
	value := make([]byte, 256)
	n, err := unix.Fgetxattr(int(file.Fd()), name, value)
	if err != nil {
		return nil
	}
	return value[:n]
}
