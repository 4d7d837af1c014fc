package files

import (
	"archive/tar"
	"bytes"
	"io"
	"strconv"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// sender is a Sink that has agbox-init make the files.
type sender struct {
	to     io.Writer
	buf    []byte
	pieces [pieceSize]byte
}

// pieceSize is how much of a file a record has, in bytes: a whole number of blocks, of which those without anything in them become holes.
const pieceSize = 32 << 10

var noPiece [pieceSize]byte

// Send returns a Sink that tells agbox-init, in its mode "file write", what to make. It fails where to does.
func Send(to io.Writer) Sink { return &sender{to: to} }

func (s *sender) Add(header *tar.Header, content io.Reader) error {
	i := protocol.FileItem{Mode: header.Mode, Size: header.Size, Seconds: header.ModTime.Unix(), Nanoseconds: int64(header.ModTime.Nanosecond()),
		Name: header.Name, Link: header.Linkname}
	for name, kind := range itemTypes {
		if kind == header.Typeflag {
			i.Type = name
		}
	}
	if err := s.send(i.Append(s.buf)); err != nil || content == nil {
		return err
	}
	hole := int64(0)
	for rest := i.Size; rest > 0; {
		piece := s.pieces[:min(rest, pieceSize)]
		if _, err := io.ReadFull(content, piece); err != nil {
			return err
		}
		rest -= int64(len(piece))
		if bytes.Equal(piece, noPiece[:len(piece)]) {
			hole += int64(len(piece))
			continue
		}
		if hole > 0 {
			s.buf, hole = protocol.AppendFile(s.buf, protocol.FileHole, strconv.FormatInt(hole, 10)), 0
		}
		if err := s.send(protocol.AppendFileData(s.buf, piece)); err != nil {
			return err
		}
	}
	if hole > 0 {
		s.buf = protocol.AppendFile(s.buf, protocol.FileHole, strconv.FormatInt(hole, 10))
	}
	return nil
}

func (s *sender) send(buf []byte) error {
	if s.buf = buf; len(buf) < pieceSize {
		return nil
	}
	_, err := s.to.Write(buf)
	s.buf = buf[:0]
	return err
}

func (s *sender) End() error {
	_, err := s.to.Write(protocol.AppendFile(s.buf, protocol.FileEnd))
	return err
}
