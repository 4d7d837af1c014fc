// Package record is how agbox-init, in its mode "file", tells the daemon what it finds: a stream of records, each a list
// of strings. It does without fmt and reflect, for the binary's sake.
//
//	stat, list:  {Entry, type, mode, uid, gid, size, seconds, nanoseconds, path, link target} ...
//	read:        {Item, type, mode, uid, gid, size, seconds, nanoseconds, device, name, link}, {Data, bytes of that file} ...
//	watch:       {Event, kind, path, old path, "d" for a directory} ...
//	in the end:  {End}, {More} when a list was cut off at its limit, or {Failed, kind, what is wrong}
//
// For "write" the daemon sends a stream, too: items as above, whose owners do not count, {Data} and {Hole, zero bytes} of each file,
// and {End}.
package record

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
)

// The first word of a record.
const (
	Entry  = "entry"
	Event  = "event"
	item   = "item"
	Data   = "data"
	Hole   = "hole"
	End    = "end"
	More   = "more"
	Failed = "failed"
)

// Types of items, in the words of Entry where that has one.
const (
	TypeFile       = "file"
	TypeDirectory  = "directory"
	TypeSymlink    = "symlink"
	TypeLink       = "link"
	TypeFIFO       = "pipe"
	TypeCharacters = "characters"
	TypeBlocks     = "blocks"
)

// Kinds of failures.
const (
	NotFound     = "not found"
	NotDirectory = "not a directory"
	NotEmpty     = "not empty"
	ReadOnly     = "read-only"
	Reserved     = "reserved"
	Mounted      = "mounted"
	Escapes      = "escapes"
	Memory       = "memory"
	Owner        = "owner"
	Other        = "other"
)

// ErrMalformed: what was read is no record.
var ErrMalformed = errors.New("record: malformed")

// maxSize is more than two paths take.
const maxSize = 64 << 10

// Item is one of a tree, as a tar stream would have it.
type Item struct {
	Type                                               string
	Mode, UID, GID, Size, Seconds, Nanoseconds, Device int64
	Name, Link                                         string
}

// Append adds the record of the item to b.
func (i *Item) Append(b []byte) []byte {
	fields := []string{item, i.Type}
	for _, n := range [...]int64{i.Mode, i.UID, i.GID, i.Size, i.Seconds, i.Nanoseconds, i.Device} {
		fields = append(fields, strconv.FormatInt(n, 10))
	}
	return Append(b, append(fields, i.Name, i.Link)...)
}

// ParseItem reads what Append wrote.
func ParseItem(fields []string) (i Item, err error) {
	if len(fields) != 11 || fields[0] != item || fields[9] == "" {
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

// Append adds a record to b. The strings hold no NUL byte, as no path does.
func Append(b []byte, fields ...string) []byte {
	body := strings.Join(fields, "\x00")
	n := len(body)
	b = append(b, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	return append(b, body...)
}

const dataPrefix = Data + "\x00"

// AppendData adds a record of Data, whose bytes may be any, at most half of what a record holds.
func AppendData(b []byte, data []byte) []byte {
	n := len(dataPrefix) + len(data)
	b = append(b, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	b = append(b, dataPrefix...)
	return append(b, data...)
}

// Read returns the next record; io.EOF at the end of the stream.
func Read(r *bufio.Reader) ([]string, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := int(head[0])<<24 | int(head[1])<<16 | int(head[2])<<8 | int(head[3])
	if size > maxSize {
		return nil, ErrMalformed
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, ErrMalformed
	}
	if data, ok := bytes.CutPrefix(body, []byte(dataPrefix)); ok {
		return []string{Data, string(data)}, nil
	}
	return strings.Split(string(body), "\x00"), nil
}
