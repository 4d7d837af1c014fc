package files

import (
	"archive/tar"
	"errors"
	"hash/maphash"
	"io"
	"maps"
	"path"
	"slices"
	"time"
)

// Account is who owns what is unpacked.
type Account struct{ UID, GID int }

// Written is what was unpacked: all but directories, and the bytes of regular files.
type Written struct{ Files, Bytes uint64 }

// Sink makes files in a directory, which is made when it is missing.
type Sink interface {
	// Add makes one. Its name is clean and below the directory, or "." for that itself, which counts only where the directory was
	// made. Owners are the sink's to say. Directories that lead there are made when they are missing, nothing is written through a
	// link that leads out of the directory, and a file does not replace a directory. A directory that is there gets the mode and
	// time of the header. The sink reads content to its end and returns its error as it is.
	Add(header *tar.Header, content io.Reader) error
	// End returns when all of it is there.
	End() error
}

const (
	// maxLinkable bounds the files that hard links of one stream may point to, which take some 32 bytes each.
	maxLinkable = 1 << 18
	// maxDirectories bounds what directories whose times are set at the end take in memory, in bytes.
	maxDirectories = 4 << 20
)

// attributes are what is said anew of something that is there.
type attributes struct {
	mode     uint16
	modified time.Time
}

// Unpack reads a tar stream and has a sink make what is in it. Nothing of an entry is handed on before it is accepted:
// names and the targets of hard links stay below the directory, also where the stream has made a link, hard links point to
// what came before in the same stream, devices and pipes are refused, extended attributes are left out. Directories come once more at
// the end, as what is put into them changes their times. What is in memory does not depend on the stream's size.
func Unpack(from io.Reader, to Sink) (Written, error) {
	u := unpacker{to: to, seed: maphash.MakeSeed(), names: map[uint64]attributes{}, links: map[uint64]struct{}{}, directories: map[string]attributes{}}
	u.source.from = from
	in := tar.NewReader(&u.source)
	for {
		header, err := in.Next()
		if err == io.EOF {
			break
		} else if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return u.written, u.source.fault(err)
		}
		if err := u.entry(header, in); err != nil {
			return u.written, err
		}
	}
	if _, err := io.Copy(io.Discard, &u.source); err != nil { // what pads the stream to whole records
		return u.written, err
	}
	for _, name := range slices.Sorted(maps.Keys(u.directories)) {
		a := u.directories[name]
		if err := to.Add(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: int64(a.mode), ModTime: a.modified}, nil); err != nil {
			return u.written, err
		}
	}
	return u.written, to.End()
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
	to          Sink
	source      source
	seed        maphash.Seed
	names       map[uint64]attributes // of files, by the hash of the name
	links       map[uint64]struct{}   // symbolic ones, by the same
	directories map[string]attributes // of those that the stream has
	held        int                   // bytes that directories take
	written     Written
}

func (u *unpacker) entry(from *tar.Header, content io.Reader) error {
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
	to := &tar.Header{Typeflag: from.Typeflag, Name: name, Linkname: from.Linkname, Size: from.Size, Mode: from.Mode & 0o7777, ModTime: from.ModTime}
	its := attributes{uint16(to.Mode), to.ModTime}
	hash := maphash.String(u.seed, name)
	delete(u.links, hash)
	switch from.Typeflag {
	case tar.TypeDir:
		delete(u.names, hash)
		to.Size = 0
		if _, known := u.directories[name]; !known {
			u.held += len(name) + 128 // the map's own
		}
		if u.held <= maxDirectories {
			u.directories[name] = its
		}
		return u.to.Add(to, nil)
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
		// What a hard link's header says anew of the file is wrong in many archives.
		to.Linkname, to.Size, to.Mode, to.ModTime = target, 0, int64(file.mode), file.modified
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		to.Typeflag = tar.TypeReg
		if len(u.names) < maxLinkable {
			u.names[hash] = its
		}
	default:
		return Refuse(ErrEntry, "the tar stream has %q, a %s; leave it out: files, directories and links are unpacked", from.Name, kindName(from.Typeflag))
	}
	if name == "." {
		return Refuse(ErrEntry, "the tar stream has %q, which is the directory itself and no directory; name the file", from.Name)
	}
	u.written.Files++
	u.written.Bytes += uint64(to.Size)
	return u.to.Add(to, &body{content, &u.source})
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

// body is the content of an entry, whose errors are the stream's. It is no io.WriterTo, which could not tell whose an error is.
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

// Plain returns the mode that a file of this owner gets: setuid and setgid bits are root's alone.
func (a Account) Plain(mode int64) int64 {
	if a.UID != 0 {
		mode &^= 0o6000
	}
	return mode
}
