package protocol_test

import (
	"math"
	"slices"
	"testing"
	"time"

	. "github.com/agbox-dev/agbox/guest/protocol"
)

var runs = []Run{
	{Length: 1, At: time.UnixMicro(1790000000123456)},
	{Stderr: true, Length: 63, At: time.UnixMicro(1790000000123456)},
	{Length: 64, At: time.UnixMicro(1790000000123457)},
	{Length: math.MaxInt64, At: time.UnixMicro(1790000000999999)},
	{Stderr: true, Length: math.MaxInt64, At: time.UnixMicro(253402300799999999)},
}

func index(runs []Run) []byte {
	b, last := []byte{IndexVersion}, int64(0)
	for _, r := range runs {
		b = AppendRun(b, r.Stderr, uint64(r.Length), uint64(r.At.UnixMicro()-last))
		last = r.At.UnixMicro()
	}
	return b
}

func decodeIndex(d *IndexDecoder, data []byte) (got []Run) {
	d.Feed(data)
	for r, more := d.Next(); more; r, more = d.Next() {
		got = append(got, r)
	}
	return got
}

func TestIndex(t *testing.T) {
	all := index(runs)
	if got := decodeIndex(new(IndexDecoder), all); !slices.Equal(got, runs) {
		t.Errorf("got %v, want %v", got, runs)
	}
	var slow IndexDecoder
	var got []Run
	for n, b := range all {
		got = append(got, decodeIndex(&slow, []byte{b})...)
		if torn := decodeIndex(new(IndexDecoder), all[:n+1]); !slices.Equal(torn, got) {
			t.Errorf("torn after %d bytes it tells %v, not %v", n+1, torn, got)
		}
	}
	if !slices.Equal(got, runs) {
		t.Errorf("byte by byte it is %v", got)
	}
	if got := decodeIndex(new(IndexDecoder), nil); got != nil {
		t.Errorf("an empty one tells %v", got)
	}
}

// What is damaged tells what was before the damage, and never anything after it.
func TestIndexDamaged(t *testing.T) {
	whole := index(runs[:2])
	for name, tail := range map[string][]byte{
		"nothing was written":   {0, 1},
		"a length has no end":   slices.Repeat([]byte{0x80}, MaxRun),
		"a time has no end":     slices.Concat([]byte{2}, slices.Repeat([]byte{0xff}, MaxRun-1)),
		"a time after the last": AppendRun(nil, false, 1, math.MaxInt64),
		"the times overflow":    AppendRun(nil, false, 1, math.MaxUint64),
	} {
		d := new(IndexDecoder)
		if got := decodeIndex(d, slices.Concat(whole, tail)); !slices.Equal(got, runs[:2]) {
			t.Errorf("%s: %v", name, got)
		}
		if got := decodeIndex(d, AppendRun(nil, false, 1, 1)); got != nil {
			t.Errorf("%s: then %v", name, got)
		}
	}
	for _, version := range []byte{0, IndexVersion + 1} {
		other := index(runs)
		other[0] = version
		if got := decodeIndex(new(IndexDecoder), other); got != nil {
			t.Errorf("of version %d: %v", version, got)
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add(index(runs), 3)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		got := decodeIndex(new(IndexDecoder), data)
		d, at := new(IndexDecoder), max(0, min(cut, len(data)))
		if parts := slices.Concat(decodeIndex(d, data[:at]), decodeIndex(d, data[at:])); !slices.Equal(parts, got) {
			t.Fatalf("in two parts %v, in one %v", parts, got)
		}
		if again := decodeIndex(new(IndexDecoder), index(got)); !slices.Equal(again, got) {
			t.Fatalf("%v, then %v", got, again)
		}
	})
}
