package files

import (
	"archive/tar"
	"bytes"
	"io"
	"path"
)

// Bounds are on what one tar stream may carry.
type Bounds struct {
	// Bytes bounds the sizes that its entries say, 0 for no bound: a file's holes count, as they go over the wire.
	Bytes uint64
	// Why is what a person reads of the bound: who has set it, and what to do.
	Why string
	// Directory is the path of the directory that the names are below. It matters for streams from an engine, which leave out,
	// without a word, what is too deep to be named; "" for others.
	Directory string
}

// bounded passes a tar stream on as it is, each entry once its header was looked at.
type bounded struct {
	bounds  Bounds
	from    io.Reader
	in      *tar.Reader
	passed  bytes.Buffer // what in has read and nobody yet
	content bool         // in is within an entry
	size    uint64
	loose   bool // what follows is no archive: who unpacks it says so
	err     error
}

// Bound returns the stream, which ends with a *Refusal of ErrTooLarge or ErrTooDeep before the first byte of an entry that does
// not fit. It holds some kilobytes of it.
func Bound(stream io.Reader, bounds Bounds) io.Reader {
	b := &bounded{bounds: bounds, from: stream}
	b.in = tar.NewReader(io.TeeReader(stream, &b.passed))
	return b
}

func (b *bounded) Read(p []byte) (int, error) {
	for b.passed.Len() == 0 && b.err == nil && !b.loose {
		b.advance(p)
	}
	switch {
	case b.passed.Len() > 0:
		return b.passed.Read(p)
	case b.err != nil:
		return 0, b.err
	}
	return b.from.Read(p)
}

// advance reads a part of an entry's content, into p for nobody, or the next header.
func (b *bounded) advance(p []byte) {
	if b.content {
		if n, err := b.in.Read(p); err != nil || n == 0 && len(p) > 0 {
			b.content = false
		}
		return
	}
	header, err := b.in.Next()
	if err != nil && header == nil {
		b.loose = true // its end, or what is none: the rest goes as it is
		return
	}
	b.content = true
	b.err = b.check(header)
	if b.err != nil {
		b.passed.Reset()
	}
}

func (b *bounded) check(header *tar.Header) error {
	b.size += uint64(max(header.Size, 0))
	if b.bounds.Bytes > 0 && b.size > b.bounds.Bytes {
		return Refuse(ErrTooLarge, "with %q of %d bytes, holes counted, the files have more than %d: %s", header.Name, header.Size, b.bounds.Bytes, b.bounds.Why)
	}
	if full := path.Join(b.bounds.Directory, header.Name); b.bounds.Directory != "" && header.Typeflag == tar.TypeDir && len(full) > MaxTree {
		return Refuse(ErrTooDeep, "a directory's path has %d bytes (%.60q…), and what lies in one with more than %d cannot be carried whole: copy a directory below it, or move it up", len(full), full, MaxTree)
	}
	return nil
}
