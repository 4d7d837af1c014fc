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
	// Exists looks for a file; only before the first Write and after a Finish.
	Exists(path string) (bool, error)
}

// maxDirectories bounds the directories of one stream that are remembered.
const maxDirectories = 1 << 16

// Unpack reads a tar stream and has an engine unpack it, rewritten. Nothing of an entry is written before it is accepted:
// names and the targets of hard links stay below the directory, hard links point to what came before in the same stream,
// devices and pipes are refused. The entry for the directory itself is left out, and so are extended attributes; setuid and
// setgid bits are root's alone. Directories that the stream has no entry for are made as if it had, when they are missing.
// What is in memory does not depend on the stream's size.
func Unpack(from io.Reader, engine Engine, to Destination) (Written, error) {
	u := unpacker{engine: engine, out: tar.NewWriter(engine), to: to, seed: maphash.MakeSeed(),
		names: map[uint64]linkable{}, directories: map[string]bool{".": to.Missing > 0}}
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
	out    *tar.Writer
	to     Destination
	seed   maphash.Seed
	names  map[uint64]linkable // by the hash of the file's name
	// directories are those met, by their clean names below the destination; true for those that were made for this stream,
	// in which there is nothing but what it brings.
	directories map[string]bool
	written     Written
}

// finish has the engine end what it does, if anything.
func (u *unpacker) finish() error {
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
		name := u.relative("/" + path.Join(parts[:i+1]...))
		if err := u.make(name); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) make(name string) error {
	header := &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}
	u.own(header)
	return u.write(header)
}

// parents makes the directories that lead to an entry, where the stream has none for them and they are missing. The engine
// would, and as root's. To look for one it has to finish first, and to begin anew.
func (u *unpacker) parents(name string) error {
	dir := path.Dir(name)
	if _, met := u.directories[dir]; met || len(u.directories) >= maxDirectories {
		return nil
	}
	if err := u.parents(dir); err != nil {
		return err
	}
	fresh, full := u.directories[path.Dir(dir)], path.Join(u.to.Directory, dir)
	if !fresh {
		if u.began {
			if err := u.finish(); err != nil {
				return err
			}
			u.out, u.began = tar.NewWriter(u.engine), false
		}
		exists, err := u.engine.Exists(full)
		if err != nil {
			return err
		}
		fresh = !exists
	}
	u.directories[dir] = fresh
	if !fresh {
		return nil
	}
	return u.make(u.relative(full))
}

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
	switch from.Typeflag {
	case tar.TypeDir:
		if name == "." {
			return nil
		}
		if err := u.parents(name); err != nil {
			return err
		}
		if _, met := u.directories[name]; !met && len(u.directories) < maxDirectories {
			u.directories[name] = u.directories[path.Dir(name)]
		}
		to.Name, to.Size = to.Name+"/", 0
		return u.write(to)
	case tar.TypeSymlink:
		to.Size = 0
	case tar.TypeLink:
		target, err := entryName(from.Linkname)
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
			u.names[maphash.String(u.seed, name)] = linkable{uint16(to.Mode), to.ModTime}
		}
	default:
		return Refuse(ErrEntry, "the tar stream has %q, a %s; leave it out: files, directories and links are unpacked", from.Name, kindName(from.Typeflag))
	}
	if name == "." {
		return Refuse(ErrEntry, "the tar stream has %q, which is the directory itself and no directory; name the file", from.Name)
	}
	if err := u.parents(name); err != nil {
		return err
	}
	if err := u.write(to); err != nil {
		return err
	}
	if to.Typeflag == tar.TypeReg {
		// Not io.Copy: it would hand the writer to the reader, which cannot tell whose an error is.
		if _, err := io.Copy(struct{ io.Writer }{u.out}, &body{content, source}); err != nil {
			return err
		}
		u.written.Bytes += uint64(to.Size)
	}
	u.written.Files++
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
