package files

import (
	"archive/tar"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/guest/files/record"
)

var itemTypes = map[string]byte{
	record.TypeFile: tar.TypeReg, record.TypeDirectory: tar.TypeDir, record.TypeSymlink: tar.TypeSymlink, record.TypeLink: tar.TypeLink,
	record.TypeFIFO: tar.TypeFifo, record.TypeCharacters: tar.TypeChar, record.TypeBlocks: tar.TypeBlock,
}

// Carry writes what agbox-init tells of a tree, record by record, to a tar stream, in the form in which the engine would.
func Carry(to *tar.Writer, fields []string) error {
	if len(fields) == 2 && fields[0] == record.Data {
		_, err := to.Write([]byte(fields[1]))
		return err
	}
	if len(fields) != 11 || fields[0] != record.Item {
		return record.ErrMalformed
	}
	var n [7]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(fields[2+i], 10, 64); err != nil {
			return record.ErrMalformed
		}
	}
	kind, known := itemTypes[fields[1]]
	if !known || fields[9] == "" || n[3] < 0 {
		return record.ErrMalformed
	}
	header := &tar.Header{
		Typeflag: kind, Name: fields[9], Linkname: fields[10], Mode: n[0], Uid: int(n[1]), Gid: int(n[2]), Size: n[3],
		ModTime: time.Unix(n[4], 0), Format: tar.FormatPAX,
		Devmajor: int64(unix.Major(uint64(n[6]))), Devminor: int64(unix.Minor(uint64(n[6]))),
	}
	if kind == tar.TypeDir && header.Name != "/" {
		header.Name += "/"
	}
	return to.WriteHeader(header)
}
