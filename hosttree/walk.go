package hosttree

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/hostpath"
	"github.com/agbox-dev/agbox/paths"
)

// walk goes through a source. It holds each directory on the way open and reaches what is in it through that, so that
// no change of a path leads it elsewhere.
type walk struct {
	source   string
	opened   *os.File // source, where that is open already
	patterns *excluder
	limit    int
	visit    func(entry) error
	// found counts the entries met so far, visited or waiting.
	found int
}

// entry is one file, directory or symbolic link of a copy.
type entry struct {
	// rel is relative to the source, with slashes; "." is the source itself. path is where it is on the host.
	rel, path string
	info      fs.FileInfo
	// link is what a symbolic link says in the copy.
	link string
	// open opens a file, the very one that info describes, and looks at it again. It is for use within the visit only.
	open func() (*os.File, fs.FileInfo, error)
}

type child struct {
	name string
	dir  bool
}

// names is how many directory entries are read at a time.
const names = 1024

func (w *walk) run(ctx context.Context) error {
	source := w.opened
	if source == nil {
		var err error
		if source, err = hostpath.Open(w.source); errors.Is(err, hostpath.ErrLink) {
			return refuse(ErrSourceSymlink, "%s is or goes through a symbolic link; write where it leads instead", shown(w.source))
		} else if err != nil {
			return unreadable(w.source, err, hintAccess)
		}
		defer source.Close()
	}
	info, err := source.Stat()
	if err != nil {
		return unreadable(w.source, err, hintAgain)
	}
	e := entry{rel: ".", path: w.source, info: info}
	w.found = 1
	switch {
	case w.found > w.limit:
		return w.tooMany()
	case info.Mode().IsRegular():
		e.open = func() (*os.File, fs.FileInfo, error) {
			f, err := os.Open(hostpath.Held(source))
			return opened(e, f, err)
		}
		return w.visit(e)
	case !info.IsDir():
		return refuse(ErrEntryKind, "%s is %s and cannot be copied; name a file or a directory", shown(w.source), kindOf(info.Mode()))
	}
	if err := w.visit(e); err != nil {
		return err
	}
	root, err := os.OpenRoot(hostpath.Held(source))
	if err != nil {
		return unreadable(w.source, err, hintAccess)
	}
	defer root.Close()
	return w.directory(ctx, root, e, 1)
}

// directory walks what is in dir, which root holds.
func (w *walk) directory(ctx context.Context, root *os.Root, dir entry, depth int) error {
	if depth > maxDepth {
		return refuse(ErrTooLarge, "%s lies more than %d directories below %s; exclude it, or mount the source", shown(dir.path), maxDepth, shown(w.source))
	}
	children, err := w.children(ctx, root, dir)
	if err != nil {
		return err
	}
	for _, c := range children {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := w.child(ctx, root, dir, c, depth); err != nil {
			return err
		}
	}
	return nil
}

// children lists what of dir is copied, in lexical order. Only names are kept: a directory may be large.
func (w *walk) children(ctx context.Context, root *os.Root, dir entry) ([]child, error) {
	f, err := root.Open(".")
	if err != nil {
		return nil, unreadable(dir.path, err, hintAccess)
	}
	defer f.Close()
	var list []child
	for {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		read, err := f.ReadDir(names)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, unreadable(dir.path, err, hintAccess)
		}
		for _, d := range read {
			if w.patterns.excluded(path.Join(dir.rel, d.Name()), d.IsDir()) {
				continue
			}
			if w.found++; w.found > w.limit {
				return nil, w.tooMany()
			}
			list = append(list, child{d.Name(), d.IsDir()})
		}
	}
	slices.SortFunc(list, func(a, b child) int { return cmp.Compare(a.name, b.name) })
	return list, nil
}

func (w *walk) child(ctx context.Context, root *os.Root, dir entry, c child, depth int) error {
	e := entry{rel: path.Join(dir.rel, c.name), path: filepath.Join(dir.path, c.name)}
	if len(e.path) >= unix.PathMax {
		return unreadable(e.path, unix.ENAMETOOLONG, hintAccess)
	}
	var err error
	if e.info, err = root.Lstat(c.name); err != nil {
		return unreadable(e.path, err, hintAgain)
	}
	if e.info.IsDir() != c.dir {
		return replaced(e.path) // the patterns were asked about something else
	}
	switch e.info.Mode().Type() {
	case 0:
		e.open = func() (*os.File, fs.FileInfo, error) {
			// Should it be a pipe by now, opening it must not wait for a writer.
			f, err := root.OpenFile(c.name, os.O_RDONLY|unix.O_NONBLOCK, 0)
			return opened(e, f, err)
		}
	case fs.ModeDir:
	case fs.ModeSymlink:
		if e.link, err = w.copiedLink(root, c.name, e.path); err != nil {
			return err
		}
	default:
		return refuse(ErrEntryKind, "%s is %s and cannot be copied; exclude it", shown(e.path), kindOf(e.info.Mode()))
	}
	if err := w.visit(e); err != nil || !c.dir {
		return err
	}
	inner, err := root.OpenRoot(c.name)
	if err != nil {
		return unreadable(e.path, err, hintAccess)
	}
	defer inner.Close()
	// As in opened.
	if opened, err := inner.Stat("."); err != nil || !os.SameFile(opened, e.info) {
		return replaced(e.path)
	}
	return w.directory(ctx, inner, e, depth+1)
}

// opened makes sure that f, if it could be opened, is what e was when the walk met it: a link that has taken its place
// is followed, though never out of the source.
func opened(e entry, f *os.File, err error) (*os.File, fs.FileInfo, error) {
	if err != nil {
		return nil, nil, unreadable(e.path, err, hintAccess)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = unreadable(e.path, err, hintAgain)
	case !info.Mode().IsRegular() || !os.SameFile(info, e.info):
		err = replaced(e.path)
	default:
		return f, info, nil
	}
	f.Close()
	return nil, nil, err
}

// copiedLink returns what the link name in root says in a copy of the source, or refuses it because it leads out.
func (w *walk) copiedLink(root *os.Root, name, at string) (string, error) {
	link, err := root.Readlink(name)
	if err != nil {
		return "", unreadable(at, err, hintAgain)
	}
	end := link
	if !filepath.IsAbs(link) {
		end = filepath.Join(filepath.Dir(at), link)
	}
	end = filepath.Clean(end)
	// The words of the link decide for one that leads nowhere, the file system for all others. What it leads to is
	// not read, here or later, so that this may go by paths.
	if real, err := filepath.EvalSymlinks(at); !paths.Within(end, w.source) || err == nil && !paths.Within(real, w.source) {
		return "", refuse(ErrLinkEscapes, "the symbolic link %s leads out of %s, to %s; exclude it, or replace it by what it leads to",
			shown(at), shown(w.source), shown(link))
	}
	if !filepath.IsAbs(link) {
		return link, nil
	}
	rel, err := filepath.Rel(filepath.Dir(at), end)
	if err != nil {
		return "", refuse(ErrLinkEscapes, "the symbolic link %s leads to %s, which has no place in the copy; exclude it", shown(at), shown(link))
	}
	return filepath.ToSlash(rel), nil
}

func (w *walk) tooMany() error {
	return refuse(ErrTooLarge, "%s holds more than %d entries; exclude what is not needed, or mount it", shown(w.source), w.limit)
}

func replaced(path string) error {
	return refuse(ErrUnreadable, "%s was replaced while the daemon looked at it; %s", shown(path), hintAgain)
}
