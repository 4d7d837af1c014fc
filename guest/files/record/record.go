// Package record is how agbox-init, in its mode "file", tells the daemon what it finds: a stream of records, each a list
// of strings. It does without fmt and reflect, for the binary's sake.
//
//	stat, list:  {Entry, type, mode, uid, gid, size, seconds, nanoseconds, path, link target} ...
//	read:        {Item, type, mode, uid, gid, size, seconds, nanoseconds, device, name, link}, {Data, bytes of that file} ...
//	watch:       {Event, kind, path, old path, "d" for a directory} ...
//	in the end:  {End}, {More} when a list was cut off at its limit, or {Failed, kind, what is wrong}
package record

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// The first word of a record.
const (
	Entry  = "entry"
	Event  = "event"
	Item   = "item"
	Data   = "data"
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
	Other        = "other"
)

// ErrMalformed: what was read is no record.
var ErrMalformed = errors.New("record: malformed")

// maxSize is more than two paths take.
const maxSize = 64 << 10

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
