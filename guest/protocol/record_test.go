package protocol_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/agbox-dev/agbox/guest/protocol"
)

func TestRecord(t *testing.T) {
	record := EncodeRecord(&result)
	if got, ok := ParseRecord(record); !ok || got != result {
		t.Fatalf("%+v, %v", got, ok)
	}
	for n := range record {
		if _, ok := ParseRecord(record[:n]); ok {
			t.Errorf("torn after %d bytes, and accepted", n)
		}
		damaged := append([]byte{}, record...)
		damaged[n] ^= 0x10
		if _, ok := ParseRecord(damaged); ok {
			t.Errorf("byte %d damaged, and accepted", n)
		}
	}
	if _, ok := ParseRecord(append(record, 0)); ok {
		t.Error("too long, and accepted")
	}
	if _, ok := ParseRecord(make([]byte, len(record))); ok {
		t.Error("zeros, and accepted")
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(EncodeRecord(&result))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, ok := ParseRecord(data)
		if !ok {
			return
		}
		if again, ok := ParseRecord(EncodeRecord(&r)); !ok || again != r {
			t.Fatalf("%+v, then %+v", r, again)
		}
	})
}

// TestResultOfAnybody: the words of a failure are valid and few, whoever wrote them, in frames as in records.
func TestResultOfAnybody(t *testing.T) {
	bad := Result{ID: "exec-1", ErrorCode: strings.Repeat("C", 1<<16), ErrorMessage: "no user \xff: " + strings.Repeat("x", 1<<20)}
	got, ok := ParseRecord(EncodeRecord(&bad))
	if !ok || !utf8.ValidString(got.ErrorMessage) || len(got.ErrorMessage) > 2<<10 || len(got.ErrorCode) > 128 {
		t.Errorf("a record says %.100q, of %d bytes", got.ErrorMessage, len(got.ErrorMessage))
	}
	if record := EncodeRecord(&bad); len(record) > 4096 {
		t.Errorf("it has %d bytes", len(record))
	}
	// One that a sandbox has made itself.
	short := Result{ID: "exec-1", ErrorMessage: "a??b"}
	forged := bytes.ReplaceAll(EncodeRecord(&short), []byte("??"), []byte("\xff\xfe"))
	var sum uint64 = 14695981039346656037
	for _, c := range forged[16:] {
		sum = (sum ^ uint64(c)) * 1099511628211
	}
	binary.LittleEndian.PutUint64(forged[8:], sum)
	if got, ok := ParseRecord(forged); !ok || got.ErrorMessage != "a?b" {
		t.Errorf("a forged record is %+v, %v", got, ok)
	}
}
