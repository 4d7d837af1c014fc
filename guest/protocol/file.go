package protocol

import (
	"bufio"
	"io"
	"strconv"
	"unsafe"
)

// TypeFile is the type of the frames that agbox-init, in its mode "file", and the daemon exchange over pipes: a stream of records, each a
// list of strings.
//
//	stat, list:  {FileEntry, type, mode, uid, gid, size, seconds, nanoseconds, path, link target, owner, group, resolved path, its type,
//	             its mode, name and value of each attribute} ...
//	read:        FileItem, {FileData, bytes of that file} ...
//	watch:       {FileEvent, kind, path, old path, "d" for a directory} ...
//	get:         an entry, {FileData, bytes of that file} ...
//	put, mkdir, move: an entry
//	in the end:  {FileEnd}, {FileMore} when a list was cut off at its limit, or {FileFailed, kind, what is wrong}
//
// For "write" the daemon sends a stream, too: items as above, whose owners do not count, {FileData} and {FileHole, zero bytes} of each
// file, and {FileEnd}. For "put" it sends {FileAttribute, name, value} ..., {FileData} ... and {FileEnd}.
const TypeFile Type = 96

// The first word of a record.
const (
	FileEntry  = "entry"
	FileEvent  = "event"
	fileItem   = "item"
	FileData   = "data"
	FileHole   = "hole"
	FileEnd    = "end"
	FileMore   = "more"
	FileFailed = "failed"

	FileAttribute = "attribute"
)

// Types of items, in the words of FileEntry where that has one.
const (
	ItemFile       = "file"
	ItemDirectory  = "directory"
	ItemSymlink    = "symlink"
	ItemLink       = "link"
	ItemFIFO       = "pipe"
	ItemCharacters = "characters"
	ItemBlocks     = "blocks"
)

// Kinds of failures.
const (
	FileNotFound     = "not found"
	FileNotDirectory = "not a directory"
	FileNotEmpty     = "not empty"
	FileReadOnly     = "read-only"
	FileReserved     = "reserved"
	FileMounted      = "mounted"
	FileEscapes      = "escapes"
	FileMemory       = "memory"
	FileOwner        = "owner"
	FileIsDirectory  = "a directory"
	FileExists       = "exists"
	FileDenied       = "denied"
	FileNoSpace      = "no space"
	FileOther        = "other"
)

// maxFileRecord bounds the body of one, in bytes; it is more than two paths take.
const maxFileRecord = 64 << 10

type fileRecord []string

func (fileRecord) Type() Type       { return TypeFile }
func (r fileRecord) put(e *encoder) { e.strs(1, r) }

func (r *fileRecord) set(f field) bool { return f.tag != 1 || f.strs((*[]string)(r)) }

// FileItem is one of a tree, as a tar stream would have it.
type FileItem struct {
	Type                                               string
	Mode, UID, GID, Size, Seconds, Nanoseconds, Device int64
	Name, Link                                         string
}

// Append adds the record of the item to b.
func (i *FileItem) Append(b []byte) []byte {
	fields := []string{fileItem, i.Type}
	for _, n := range [...]int64{i.Mode, i.UID, i.GID, i.Size, i.Seconds, i.Nanoseconds, i.Device} {
		fields = append(fields, strconv.FormatInt(n, 10))
	}
	return AppendFile(b, append(fields, i.Name, i.Link)...)
}

// ParseFileItem reads what Append wrote.
func ParseFileItem(fields []string) (i FileItem, err error) {
	if len(fields) != 11 || fields[0] != fileItem || fields[9] == "" {
		return i, ErrMalformed
	}
	for at, n := range [...]*int64{&i.Mode, &i.UID, &i.GID, &i.Size, &i.Seconds, &i.Nanoseconds, &i.Device} {
		if *n, err = strconv.ParseInt(fields[2+at], 10, 64); err != nil {
			return i, ErrMalformed
		}
	}
	i.Type, i.Name, i.Link = fields[1], fields[9], fields[10]
	if i.Size < 0 {
		err = ErrMalformed
	}
	return i, err
}

// AppendFile adds a record to b.
func AppendFile(b []byte, fields ...string) []byte {
	r := fileRecord(fields)
	b, _ = appendFrame(b, &r, 0) // too big is what no path and no chunk is
	return b
}

// AppendFileData adds a record of FileData, with at most half of what a record holds.
func AppendFileData(b, data []byte) []byte {
	return AppendFile(b, FileData, unsafe.String(unsafe.SliceData(data), len(data)))
}

// ReadFile returns the fields of the next record, one at least; io.EOF at the end of the stream.
func ReadFile(from *bufio.Reader) ([]string, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return nil, err
	}
	t, nfds, n, err := parseHeader(header[:])
	if err != nil || t != TypeFile || nfds != 0 || n > maxFileRecord {
		return nil, ErrMalformed
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(from, body); err != nil {
		return nil, ErrMalformed
	}
	var r fileRecord
	if !decodeFields(body, &r) || len(r) == 0 {
		return nil, ErrMalformed
	}
	return r, nil
}
