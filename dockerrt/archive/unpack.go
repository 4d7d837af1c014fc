package archive

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"path"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/agbox-dev/agbox/guest/files"
	"github.com/agbox-dev/agbox/paths"
)

// destination is where in a sandbox that does not run a tar stream is unpacked.
type destination struct {
	// root is where the engine begins, and directory, which has no links, where the stream does: root itself or below.
	root, directory string
	// missing is how many directories at the end of directory are to be made.
	missing int
	owner   files.Account
}

// unpacking is a files.Sink that has the engine make the files, of a sandbox that does not run. The engine would make the directories that
// lead to an entry as root's, so that those are looked for, which the engine answers only once it has ended the stream that it is at: some 90 ms.
// So there is one look for each window of entries.
type unpacking struct {
	box  box
	ctx  context.Context
	name string // of the directory, as it was asked for
	to   destination
	out  *tar.Writer // nil while the engine unpacks nothing
	pipe *io.PipeWriter
	done chan error

	// seen are the directories that were met, by their names below the destination; remembered bounds them.
	seen       map[string]seenDirectory
	remembered int
	window     []waiting
	held       int // bytes that the window has
}

// seenDirectory is one that a path leads to.
type seenDirectory struct {
	place
	fresh bool // it was made for this stream, in which there is nothing but what it brings
}

// waiting is an entry, and its content if that is small.
type waiting struct {
	header  *tar.Header
	content []byte
	made    []string // directories to make before
}

const (
	maxRemembered = 4 << 20 // bytes
	windowBytes   = 4 << 20
	entryBytes    = 512 // that an entry takes beside its names and content
)

var errEngineDone = errors.New("the engine reads no further")

func newUnpacking(ctx context.Context, b box, name string, to destination) *unpacking {
	return &unpacking{box: b, ctx: ctx, name: name, to: to, seen: map[string]seenDirectory{".": {place{path: to.directory, missing: to.missing, directory: true}, to.missing > 0}}}
}

// above makes what is missing of the destination.
func (u *unpacking) above() error {
	parts := strings.Split(strings.Trim(u.to.directory, "/"), "/")
	for i := len(parts) - u.to.missing; i < len(parts); i++ {
		if err := u.make("/" + path.Join(parts[:i+1]...)); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacking) Add(header *tar.Header, content io.Reader) error {
	full := path.Join(u.to.directory, header.Name)
	if err := files.Reserved(full); err != nil {
		return err
	}
	if header.Name == "." && u.to.missing == 0 {
		return nil
	}
	w := waiting{header: header}
	u.held += len(header.Name) + len(header.Linkname) + entryBytes
	if header.Size > 0 && header.Size > int64(windowBytes-u.held) {
		u.window = append(u.window, w)
		if err := u.flush(); err != nil {
			return err
		}
		_, err := io.Copy(struct{ io.Writer }{u.out}, content) // which tells whose an error is
		return err
	}
	if header.Size > 0 {
		w.content = make([]byte, header.Size)
		if _, err := io.ReadFull(content, w.content); err != nil {
			return err
		}
	}
	u.window = append(u.window, w)
	if u.held += len(w.content); u.held < windowBytes {
		return nil
	}
	return u.flush()
}

func (u *unpacking) End() error {
	if err := u.flush(); err != nil {
		return err
	}
	return u.finish()
}

// flush looks for the directories that lead to the window's entries, and writes it out.
func (u *unpacking) flush() error {
	for i := range u.window {
		w := &u.window[i]
		if err := u.parents(w, path.Dir(w.header.Name)); err != nil {
			return err
		}
		if w.header.Typeflag == tar.TypeDir {
			u.remember(w.header.Name, seenDirectory{fresh: u.seen[path.Dir(w.header.Name)].fresh})
		}
	}
	for _, w := range u.window {
		for _, name := range w.made {
			if err := u.make(path.Join(u.to.directory, name)); err != nil {
				return err
			}
		}
		if w.header.Linkname != "" && w.header.Typeflag == tar.TypeLink {
			w.header.Linkname = u.below(path.Join(u.to.directory, w.header.Linkname))
		}
		if err := u.write(path.Join(u.to.directory, w.header.Name), w.header); err != nil {
			return err
		}
		if _, err := u.out.Write(w.content); err != nil {
			return err
		}
	}
	clear(u.window)
	u.window, u.held = u.window[:0], 0
	return nil
}

// remember keeps what is known of a directory, as long as there is room: what is not remembered the engine makes, as root's.
func (u *unpacking) remember(name string, d seenDirectory) {
	if _, known := u.seen[name]; known || u.remembered > maxRemembered {
		return
	}
	u.remembered += len(name) + len(d.path) + entryBytes/2
	u.seen[name] = d
}

// parents finds out about the directory dir that leads to w, and those above.
func (u *unpacking) parents(w *waiting, dir string) error {
	if _, known := u.seen[dir]; known || u.remembered > maxRemembered {
		return nil
	}
	if err := u.parents(w, path.Dir(dir)); err != nil {
		return err
	}
	d := seenDirectory{fresh: u.seen[path.Dir(dir)].fresh}
	if !d.fresh {
		if err := u.finish(); err != nil { // nothing of the window is written yet
			return err
		}
		var err error
		if d.place, err = u.look(dir); err != nil {
			return err
		}
		d.fresh = d.missing > 0
	}
	if d.fresh {
		w.made = append(w.made, dir)
	}
	u.remember(dir, d)
	return nil
}

// look takes one look at a directory whose own directory was looked at before, unless the stream has brought that.
func (u *unpacking) look(dir string) (at place, err error) {
	full := path.Join(u.to.directory, dir)
	if above := u.seen[path.Dir(dir)]; above.path != "" {
		at, err = u.box.follow(u.ctx, above.place, path.Base(dir), full)
	} else {
		at, err = u.box.resolve(u.ctx, full)
	}
	if err == nil && !paths.Within(at.path, u.to.directory) {
		err = files.Refuse(files.ErrEscapes, "the tar stream goes through %q, which is a link in the sandbox to %q, out of %q; unpack it there", full, at.path, u.name)
	}
	return at, err
}

func (u *unpacking) make(full string) error {
	return u.write(full, &tar.Header{Typeflag: tar.TypeDir, Mode: 0o755, ModTime: time.Now()})
}

// below returns a path as the engine sees it from its root.
func (u *unpacking) below(full string) string {
	return strings.TrimPrefix(strings.TrimPrefix(full, strings.TrimSuffix(u.to.root, "/")), "/")
}

// write has the engine begin when it has not.
func (u *unpacking) write(full string, header *tar.Header) error {
	if u.out == nil {
		reader, writer := io.Pipe()
		u.pipe, u.done, u.out = writer, make(chan error, 1), tar.NewWriter(writer)
		go func() {
			err := u.box.files.engine.CopyToContainer(u.ctx, u.box.ID, u.to.root, reader, container.CopyToContainerOptions{})
			reader.CloseWithError(errEngineDone)
			u.done <- err
		}()
	}
	header.Name = u.below(full)
	if header.Typeflag == tar.TypeDir {
		header.Name += "/"
	}
	header.Uid, header.Gid, header.Mode, header.Format = u.to.owner.UID, u.to.owner.GID, u.to.owner.Plain(header.Mode), tar.FormatPAX
	return u.out.WriteHeader(header)
}

// finish returns when the engine has unpacked what it was given.
func (u *unpacking) finish() error {
	if u.out == nil {
		return nil
	}
	if err := u.out.Close(); err != nil {
		return err
	}
	u.pipe.Close()
	u.out = nil
	if err := <-u.done; err != nil {
		return engineRefusal(u.name, err)
	}
	return nil
}

// stop ends an unpacking that failed, and returns why: the engine's own error where it is that.
func (u *unpacking) stop(reason error) error {
	if u.out == nil {
		return reason
	}
	u.pipe.CloseWithError(reason)
	if err := <-u.done; errors.Is(reason, errEngineDone) && err != nil {
		return engineRefusal(u.name, err)
	}
	return reason
}
