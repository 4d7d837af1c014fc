package protocol_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	. "github.com/agbox-dev/agbox/guest/protocol"
)

func TestFileRecords(t *testing.T) {
	item := FileItem{Type: ItemLink, Mode: 0o644, UID: 1, Size: 1 << 40, Seconds: -1, Name: "a\nb", Link: "c"}
	stream := AppendFile(item.Append(AppendFileData(nil, []byte{0, 1, 0})), FileEvent, "", "x", "")
	from := bufio.NewReader(bytes.NewReader(stream))
	if got, err := ReadFile(from); err != nil || !slices.Equal(got, []string{FileData, "\x00\x01\x00"}) {
		t.Errorf("%q, %v", got, err)
	}
	fields, err := ReadFile(from)
	if got, parseErr := ParseFileItem(fields); err != nil || parseErr != nil || got != item {
		t.Errorf("%+v, %v, %v", got, err, parseErr)
	}
	if got, err := ReadFile(from); err != nil || !slices.Equal(got, []string{FileEvent, "", "x", ""}) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := ReadFile(from); err != io.EOF {
		t.Error(err)
	}
	ack, _ := Encode(&Ack{ID: "x"}, 0)
	for name, forged := range map[string][]byte{
		"cut off": stream[:len(stream)-1], "no fields": AppendFile(nil), "another type": ack, "too long": AppendFile(nil, string(make([]byte, 70<<10))),
		"garbage": bytes.Repeat([]byte{7}, 100),
	} {
		from := bufio.NewReader(bytes.NewReader(forged))
		var err error
		for err == nil {
			_, err = ReadFile(from)
		}
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
