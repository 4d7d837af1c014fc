package layer

import (
	"bytes"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// same reports whether two files of one type have the same mode and content.
func (w *walk) same(upper, lower side, name, lowerName string, st, was *unix.Stat_t) (bool, error) {
	t := typeOf(st)
	if t != Symlink && st.Mode&0o7777 != was.Mode&0o7777 {
		return false, nil
	}
	switch t {
	case Symlink:
		now, err := upper.link(name)
		if err != nil {
			return false, err
		}
		before, err := lower.link(lowerName)
		return now == before, err
	case File:
		if st.Size != was.Size {
			return false, nil
		}
		if st.Size > sparseSize && st.Blocks*512 < st.Size/4 {
			return false, nil // its length is not worth the reading
		}
		return w.sameContent(upper, lower, name, lowerName)
	case Device:
		return st.Rdev == was.Rdev, nil
	}
	return true, nil
}

func (w *walk) sameContent(upper, lower side, name, lowerName string) (bool, error) {
	now, err := upper.open(name, 0)
	if err != nil {
		return false, err
	}
	defer now.Close()
	before, err := lower.open(lowerName, 0)
	if err != nil {
		return false, err
	}
	defer before.Close()
	for _, file := range []*os.File{now, before} {
		if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
			return false, err
		}
	}
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		if err := w.ctx.Err(); err != nil {
			return false, err
		}
		n, err := io.ReadFull(now, a)
		m, otherErr := io.ReadFull(before, b)
		if !bytes.Equal(a[:n], b[:m]) {
			return false, nil
		}
		for _, err := range []error{err, otherErr} {
			switch err {
			case nil:
			case io.EOF, io.ErrUnexpectedEOF:
				return true, nil
			default:
				return false, err
			}
		}
	}
}

// link returns where a symbolic link leads.
func (s side) link(name string) (string, error) {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(s.Fd()), name, target)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: name, Err: err}
	}
	return string(target[:n]), nil
}

// newer reports whether the host changed its file since the layer was made. A directory to which only names were added, or
// of which names were removed, was not changed itself: that moves both of its times.
func (w *walk) newer(was *unix.Stat_t) bool {
	if typeOf(was) == Directory && was.Ctim == was.Mtim {
		return false
	}
	return !changedAt(was).Before(w.layer.Made)
}

// touched is newer for a file that goes with all that is in it.
func (w *walk) touched(lower side, name string, was *unix.Stat_t, depth int) (bool, error) {
	if !changedAt(was).Before(w.layer.Made) {
		return true, nil
	}
	if typeOf(was) != Directory {
		return false, nil
	}
	if depth >= maxDepth {
		return true, nil // nobody looked
	}
	inner, err := lower.directory(name)
	if err != nil {
		return false, ignoreGone(err)
	}
	defer inner.close()
	found := false
	err = names(inner.File, func(name string) error {
		if err := w.ctx.Err(); err != nil || found {
			return err
		}
		st, err := inner.stat(name)
		if err != nil || st == nil {
			return err
		}
		found, err = w.touched(inner, name, st, depth+1)
		return err
	})
	return found, err
}

// originHandle is where a handle begins in what an overlay notes of the file that one was copied from: struct ovl_fb of the
// kernel's fs/overlayfs/overlayfs.h has version, magic, length, flags, type and a UUID of 16 bytes before it.
const (
	originType   = 4
	originHandle = 21
	originMagic  = 0xfb
)

// hostRemoved reports whether a file that the host does not have was copied from one that it had until after the copy.
func (w *walk) hostRemoved(upper, lower side, name, of string) bool {
	if of != File || !lower.there() {
		return false
	}
	file, err := upper.open(name, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	note := noted(file, "trusted.overlay.origin")
	if len(note) <= originHandle || note[1] != originMagic {
		return false
	}
	handle := unix.NewFileHandle(int32(note[originType]), note[originHandle:])
	origin, err := unix.OpenByHandleAt(int(lower.Fd()), handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return err == unix.ESTALE
	}
	defer unix.Close(origin)
	var st unix.Stat_t
	return unix.Fstat(origin, &st) == nil && st.Nlink == 0
}
