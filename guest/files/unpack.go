package files

import (
	"archive/tar"
	"errors"
	"hash/maphash"
	"io"
	"path"
	"strings"
	"time"
)

// Account is who owns what is unpacked.
type Account struct{ UID, GID int }

// Written is what was unpacked: all but directories, and the bytes of regular files.
type Written struct{ Files, Bytes uint64 }

// Destination is where in the sandbox a tar stream is unpacked.
type Destination struct {
	// Root is where the engine begins, and Directory where the stream does: Root itself or below.
	Root, Directory string
	// Missing is how many directories at the end of Directory are to be made.
	Missing int
	Owner   Account
}

// maxLinkable bounds the files that hard links of one stream may point to, which take some 32 bytes each.
const maxLinkable = 1 << 18

// linkable is what a hard link's header says anew of a file. Many archives do not, and the engine would believe it.
type linkable struct {
	mode     uint16
	modified time.Time
}

// Engine unpacks tar streams in Destination.Root, one after the other.
type Engine interface {
	// Write has a part of the stream; the first one begins it.
	io.Writer
	// Finish returns when the stream, whose end was written, is unpacked.
	Finish() error
	// Exists looks for a directory below the destination; only before the first Write and after a Finish. It fails where
	// a link leads out of the destination.
	Exists(path string) (bool, error)
}

const (
	// maxDirectories bounds the directories of one stream that are remembered. Beyond it the engine makes what is missing,
	// as root's.
	maxDirectories = 1 << 16
	// An engine is given a window of entries at a time: looking for a directory takes that it has ended what it does, which
	// costs some 90 ms, and one look for each window is enough.
	windowBytes   = 4 << 20
	windowEntries = 4096
)

// Unpack reads a tar stream and has an engine unpack it, rewritten. Nothing of an entry is written before it is accepted:
// names and the targets of hard links stay below the directory, also where the stream has made a link, hard links point to
// what came before in the same stream, devices and pipes are refused. The entry for the directory itself counts where that
// is made; extended attributes are left out, and setuid and setgid bits are root's alone. Directories that the stream has no
// entry for are made as if it had, when they are missing. What is in memory does not depend on the stream's size.
func Unpack(from io.Reader, engine Engine, to Destination) (Written, error) {
	u := unpacker{engine: engine, out: tar.NewWriter(engine), to: to, seed: maphash.MakeSeed(), now: time.Now(),
		names: map[uint64]linkable{}, links: map[uint64]struct{}{}, directories: map[string]*directory{".": {fresh: to.Missing > 0}}}
	if err := u.above(); err != nil {
		return u.written, err
	}
	source := &source{from: from}
	in := tar.NewReader(source)
	for {
		header, err := in.Next()
		if err == io.EOF {
			break
		} else if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return u.written, source.fault(err)
		}
		if err := u.entry(header, in, source); err != nil {
			return u.written, err
		}
	}
	if _, err := io.Copy(io.Discard, source); err != nil { // what pads the stream to whole records
		return u.written, err
	}
	if err := u.flush(); err != nil {
		return u.written, err
	}
	return u.written, u.finish()
}

// source tells the stream's own errors from those of its content.
type source struct {
	from io.Reader
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

func (s *source) fault(err error) error {
	if s.err != nil {
		return s.err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return Refuse(ErrTar, "the tar stream ends in the middle of an entry; send all of it")
	}
	return Refuse(ErrTar, "it is not a tar stream (%v); send an uncompressed one", err)
}

type unpacker struct {
	engine Engine
	began  bool // of the engine's present stream something was written
	again  bool // the engine has ended a stream before
	out    *tar.Writer
	to     Destination
	now    time.Time
	seed   maphash.Seed
	names  map[uint64]linkable // by the hash of the file's name
	links  map[uint64]struct{} // symbolic ones, by the same
	// directories are those met, by their clean names below the destination.
	directories map[string]*directory
	window      []waiting
	held        int // bytes of content in the window
	written     Written
}

// directory is one that was met.
type directory struct {
	// fresh: it was made for this stream, in which there is nothing but what it brings.
	fresh bool
	// entry is what the stream says of it, nil where it says nothing.
	entry *linkable
}

// waiting is an entry that was accepted, and its content if that is small.
type waiting struct {
	name    string
	header  *tar.Header
	content []byte
	made    []string // directories to make before
}

// finish has the engine end what it does, if anything. When it was begun anew, the times of directories are set once more:
// what came into them since has changed them.
func (u *unpacker) finish() error {
	if u.again {
		for name, d := range u.directories {
			if d.entry != nil {
				header := &tar.Header{Typeflag: tar.TypeDir, Name: u.relative(path.Join(u.to.Directory, name)) + "/", Mode: int64(d.entry.mode), ModTime: d.entry.modified}
				u.own(header)
				if err := u.write(header); err != nil {
					return err
				}
			}
		}
	}
	if err := u.out.Close(); err != nil {
		return err
	}
	return u.engine.Finish()
}

func (u *unpacker) write(header *tar.Header) error {
	u.began = true
	return u.out.WriteHeader(header)
}

// above makes what is missing of the directory.
func (u *unpacker) above() error {
	parts := strings.Split(strings.Trim(u.to.Directory, "/"), "/")
	for i := len(parts) - u.to.Missing; i < len(parts); i++ {
		if err := u.make("/" + path.Join(parts[:i+1]...)); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) make(full string) error {
	header := &tar.Header{Typeflag: tar.TypeDir, Name: u.relative(full) + "/", Mode: 0o755, ModTime: u.now}
	u.own(header)
	return u.write(header)
}

// flush writes the window out. Directories that lead to an entry and are missing are made, where the stream has none for
// them: the engine would, and as root's.
func (u *unpacker) flush() error {
	for i := range u.window {
		w := &u.window[i]
		if err := u.parents(w, path.Dir(w.name)); err != nil {
			return err
		}
		if w.header.Typeflag == tar.TypeDir {
			if d := u.directories[w.name]; d == nil && len(u.directories) < maxDirectories {
				u.directories[w.name] = &directory{fresh: u.directories[path.Dir(w.name)].isFresh()}
			}
			if d := u.directories[w.name]; d != nil {
				d.entry = &linkable{uint16(w.header.Mode), w.header.ModTime}
			}
		}
	}
	for _, w := range u.window {
		for _, name := range w.made {
			if err := u.make(path.Join(u.to.Directory, name)); err != nil {
				return err
			}
		}
		if err := u.write(w.header); err != nil {
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

// parents finds out about the directory dir that leads to w, and those above.
func (u *unpacker) parents(w *waiting, dir string) error {
	if u.directories[dir] != nil || len(u.directories) >= maxDirectories {
		return nil
	}
	if err := u.parents(w, path.Dir(dir)); err != nil {
		return err
	}
	fresh, full := u.directories[path.Dir(dir)].isFresh(), path.Join(u.to.Directory, dir)
	if !fresh {
		if u.began { // nothing of the window is written yet
			if err := u.out.Close(); err != nil {
				return err
			}
			if err := u.engine.Finish(); err != nil {
				return err
			}
			u.out, u.began, u.again = tar.NewWriter(u.engine), false, true
		}
		exists, err := u.engine.Exists(full)
		if err != nil {
			return err
		}
		fresh = !exists
	}
	u.directories[dir] = &directory{fresh: fresh}
	if fresh {
		w.made = append(w.made, dir)
	}
	return nil
}

// isFresh takes one that is not remembered for one that was there.
func (d *directory) isFresh() bool { return d != nil && d.fresh }

// relative returns a path as the engine sees it from its root.
func (u *unpacker) relative(p string) string {
	return strings.TrimPrefix(strings.TrimPrefix(p, strings.TrimSuffix(u.to.Root, "/")), "/")
}

func (u *unpacker) own(header *tar.Header) {
	header.Uid, header.Gid, header.Format = u.to.Owner.UID, u.to.Owner.GID, tar.FormatPAX
}

func (u *unpacker) entry(from *tar.Header, content io.Reader, source *source) error {
	if from.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := entryName(from.Name)
	if err == nil {
		err = u.insideOf(name)
	}
	if err != nil {
		return err
	}
	full := path.Join(u.to.Directory, name)
	if err := Reserved(full); err != nil {
		return err
	}
	to := &tar.Header{
		Typeflag: from.Typeflag, Name: u.relative(full), Linkname: from.Linkname, Size: from.Size,
		Mode: from.Mode & 0o7777, ModTime: from.ModTime,
	}
	u.own(to)
	if to.Uid != 0 {
		to.Mode &^= 0o6000
	}
	hash := maphash.String(u.seed, name)
	delete(u.links, hash)
	switch from.Typeflag {
	case tar.TypeDir:
		if name == "." && u.to.Missing == 0 {
			return nil
		}
		delete(u.names, hash)
		to.Name, to.Size = to.Name+"/", 0
		return u.hold(waiting{name: name, header: to})
	case tar.TypeSymlink:
		if len(u.links) >= maxLinkable {
			return Refuse(ErrEntry, "the tar stream has more than %d symbolic links; send it in parts", maxLinkable)
		}
		if len(from.Linkname) > maxPath {
			return Refuse(ErrEntry, "the tar stream has the link %q with a target of %d bytes, and a link's has %d at most; shorten it", name, len(from.Linkname), maxPath)
		}
		delete(u.names, hash)
		u.links[hash] = struct{}{}
		to.Size = 0
	case tar.TypeLink:
		target, err := entryName(from.Linkname)
		if err == nil {
			err = u.insideOf(target)
		}
		if err != nil {
			return err
		}
		file, known := u.names[maphash.String(u.seed, target)]
		if !known {
			return Refuse(ErrEntry, "the tar stream has the hard link %q to %q, which is no file that came before it; put the file itself into the archive", from.Name, from.Linkname)
		}
		to.Linkname, to.Size = u.relative(path.Join(u.to.Directory, target)), 0
		to.Mode, to.ModTime = int64(file.mode), file.modified
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		to.Typeflag = tar.TypeReg
		if len(u.names) < maxLinkable {
			u.names[hash] = linkable{uint16(to.Mode), to.ModTime}
		}
	default:
		return Refuse(ErrEntry, "the tar stream has %q, a %s; leave it out: files, directories and links are unpacked", from.Name, kindName(from.Typeflag))
	}
	if name == "." {
		return Refuse(ErrEntry, "the tar stream has %q, which is the directory itself and no directory; name the file", from.Name)
	}
	u.written.Files++
	u.written.Bytes += uint64(to.Size)
	// Not io.Copy between the two: it would hand the writer to the reader, which cannot tell whose an error is.
	file := &body{content, source}
	if to.Size <= int64(windowBytes-u.held) {
		held := make([]byte, to.Size)
		if _, err := io.ReadFull(file, held); err != nil {
			return err
		}
		return u.hold(waiting{name: name, header: to, content: held})
	}
	u.window = append(u.window, waiting{name: name, header: to})
	if err := u.flush(); err != nil {
		return err
	}
	_, err = io.Copy(struct{ io.Writer }{u.out}, file)
	return err
}

// hold puts an entry into the window, and writes that out when it is full.
func (u *unpacker) hold(w waiting) error {
	u.window = append(u.window, w)
	if u.held += len(w.content); u.held < windowBytes && len(u.window) < windowEntries {
		return nil
	}
	return u.flush()
}

// insideOf refuses a name that goes through a symbolic link of the same stream.
func (u *unpacker) insideOf(name string) error {
	if len(u.links) == 0 {
		return nil
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, link := u.links[maphash.String(u.seed, dir)]; link {
			return Refuse(ErrEscapes, "the tar stream has %q, which goes through its own link %q; put the file where the link leads", name, dir)
		}
	}
	return nil
}

// body is the content of an entry, whose errors are the stream's.
type body struct {
	content io.Reader
	source  *source
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.content.Read(p)
	if err != nil && err != io.EOF {
		err = b.source.fault(err)
	}
	return n, err
}

func kindName(flag byte) string {
	switch flag {
	case tar.TypeChar, tar.TypeBlock:
		return "device"
	case tar.TypeFifo:
		return "named pipe"
	}
	return "thing of the unknown type " + string(flag)
}
