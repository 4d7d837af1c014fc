package files

import (
	"archive/tar"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/guest/protocol"
)

var itemTypes = map[string]byte{
	protocol.ItemFile: tar.TypeReg, protocol.ItemDirectory: tar.TypeDir, protocol.ItemSymlink: tar.TypeSymlink, protocol.ItemLink: tar.TypeLink,
	protocol.ItemFIFO: tar.TypeFifo, protocol.ItemCharacters: tar.TypeChar, protocol.ItemBlocks: tar.TypeBlock,
}

// Carry writes what agbox-init tells of a tree, record by record, to a tar stream, in the form in which the engine would.
func Carry(to *tar.Writer, fields []string) error {
	if len(fields) == 2 && fields[0] == protocol.FileData {
		_, err := to.Write([]byte(fields[1]))
		return err
	}
	i, err := protocol.ParseFileItem(fields)
	kind, known := itemTypes[i.Type]
	if err != nil || !known {
		return protocol.ErrMalformed
	}
	header := &tar.Header{
		Typeflag: kind, Name: i.Name, Linkname: i.Link, Mode: i.Mode, Uid: int(i.UID), Gid: int(i.GID), Size: i.Size,
		ModTime: time.Unix(i.Seconds, 0), Format: tar.FormatPAX,
		Devmajor: int64(unix.Major(uint64(i.Device))), Devminor: int64(unix.Minor(uint64(i.Device))),
	}
	if kind == tar.TypeDir && header.Name != "/" {
		header.Name += "/"
	}
	return to.WriteHeader(header)
}
