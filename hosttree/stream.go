package hosttree

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
)

const (
	// bufferSize is what is read and written at a time: small entries share a write, large files take few.
	bufferSize = 64 << 10
	// maxLinks bounds the files with several names that are remembered; a later one becomes a file for each name.
	maxLinks = 1 << 16
)

// Owner is whom copies belong to.
type Owner struct{ UID, GID int }

// StreamOpened writes a tar to w that puts source, which hostpath.Open has opened, at target, without excludes; see the package
// comment for how to extract it.
// target is clean and absolute, and not "/". All that Check checks is checked again as the walk comes to
// it, and the walk keeps hold of what it has checked: whatever is replaced meanwhile, nothing outside of source is read.
//
// The memory it takes does not grow with the size of files; names of one directory and of the directories above it are
// held, maxEntries at most, and those of up to maxLinks files with hard links.
//
// A file is copied with the size that it had when it was opened: what was added since is left out, what was taken away is
// filled with zeros. It goes on and, the tar being complete, ends with an *Error of ErrChanged that names the first
// such file; whether the copy is good enough is the caller's to decide. After any other error the tar is cut off and must
// not be used: it is an *Error, ctx's cause, or the first error of w. A write to w that hangs is for w's owner to end.
//
// visit is as in Check. Everything belongs to owner, setuid and setgid bits being root's alone; with nil, to whom it belongs here.
func StreamOpened(ctx context.Context, w io.Writer, source *os.File, target string, excludes []string, visit func(string, fs.FileInfo) error, owner *Owner) error {
	return write(ctx, w, walk{source: source.Name(), opened: source}, target, excludes, visit, owner)
}

func write(ctx context.Context, w io.Writer, from walk, target string, excludes []string, visit func(string, fs.FileInfo) error, owner *Owner) error {
	patterns, err := newExcluder(excludes)
	if err != nil {
		return err
	}
	if !path.IsAbs(target) || path.Clean(target) != target || target == "/" {
		return refuse(ErrTarget, "%s cannot be the target of a copy; name a clean absolute path below /", shown(target))
	}
	buffered := bufio.NewWriterSize(w, bufferSize)
	s := &stream{
		ctx: ctx, tar: tar.NewWriter(buffered), target: strings.TrimPrefix(target, "/"),
		links: map[inode]string{}, buffer: make([]byte, bufferSize), owner: owner,
	}
	from.patterns, from.limit, from.visit = patterns, maxEntries, func(e entry) error {
		if visit != nil {
			if err := visit(e.path, e.info); err != nil {
				return err
			}
		}
		return s.add(e)
	}
	if err := from.run(ctx); err != nil {
		return err
	}
	if err := s.tar.Close(); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	if s.changes > 0 {
		return refuse(ErrChanged, "%s was written to while it was copied (files in all: %d); copy again when nothing writes to %s",
			shown(s.changed), s.changes, shown(from.source))
	}
	return nil
}

type stream struct {
	ctx    context.Context
	tar    *tar.Writer
	target string
	links  map[inode]string
	buffer []byte
	owner  *Owner // nil: everybody keeps what is theirs
	// changed is the first of changes files that were written to meanwhile.
	changed string
	changes int
}

// inode tells whether two entries are one file. Size and time are there for an inode number that was freed and taken
// again since.
type inode struct {
	device, number uint64
	size           int64
	modified       time.Time
}

func (s *stream) add(e entry) error {
	if e.open != nil {
		return s.addFile(e)
	}
	h, err := s.header(e, e.info)
	if err != nil {
		return err
	}
	if h.Typeflag == tar.TypeDir {
		h.Name += "/"
	}
	return s.tar.WriteHeader(h)
}

func (s *stream) addFile(e entry) error {
	f, info, err := e.open()
	if err != nil {
		return err
	}
	defer f.Close()
	h, err := s.header(e, info)
	if err != nil {
		return err
	}
	if first, ok := s.linked(h.Name, info); ok {
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		return s.tar.WriteHeader(h)
	}
	if err := s.tar.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.CopyBuffer(s.tar, io.LimitReader(content{s.ctx, f, e.path}, h.Size), s.buffer); err != nil {
		return err
	}
	now, err := f.Stat()
	if err != nil {
		return unreadable(e.path, err, hintAgain)
	}
	if now.Size() != h.Size || !now.ModTime().Equal(h.ModTime) {
		if s.changes++; s.changes == 1 {
			s.changed = e.path
		}
	}
	return nil
}

// header describes an entry. PAX is the format that has room for long names, fractions of a second and any size.
func (s *stream) header(e entry, info fs.FileInfo) (*tar.Header, error) {
	h, err := tar.FileInfoHeader(numeric{info}, e.link)
	if err != nil {
		return nil, unreadable(e.path, err, hintAgain)
	}
	h.Name, h.Format = path.Join(s.target, e.rel), tar.FormatPAX
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	if s.owner != nil {
		h.Uid, h.Gid = s.owner.UID, s.owner.GID
		if h.Uid != 0 {
			h.Mode &^= 0o6000
		}
	}
	return h, nil
}

// linked returns the name under which the file is in the tar already, or remembers this one.
func (s *stream) linked(name string, info fs.FileInfo) (first string, ok bool) {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known || stat.Nlink < 2 {
		return "", false
	}
	id := inode{uint64(stat.Dev), uint64(stat.Ino), info.Size(), info.ModTime()}
	if first, ok = s.links[id]; !ok && len(s.links) < maxLinks {
		s.links[id] = name
	}
	return first, ok
}

// numeric is a file without the names of its owner: the container has its own.
type numeric struct{ fs.FileInfo }

func (numeric) Uname() (string, error) { return "", nil }
func (numeric) Gname() (string, error) { return "", nil }

var _ tar.FileInfoNames = numeric{}

// content is a file and, when that ends, zeros.
type content struct {
	ctx  context.Context
	file *os.File
	path string
}

func (c content) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	n, err := c.file.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		clear(p)
		return len(p), nil
	case err != nil:
		return n, unreadable(c.path, err, hintAgain)
	}
	return n, nil
}
