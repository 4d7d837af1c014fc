package initproto_test

import (
	"testing"

	. "github.com/agbox-dev/agbox/dockerrt/initproto"
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
