package protocol

import (
	"time"

	"github.com/agbox-dev/agbox/text"
)

const (
	kindNumber = 0
	kindBytes  = 1
)

type message interface {
	put(*encoder)
	set(field) bool
}

// encoder appends fields; zero values are left out.
type encoder struct{ b []byte }

func (e *encoder) uvarint(v uint64) {
	for v >= 0x80 {
		e.b = append(e.b, byte(v)|0x80)
		v >>= 7
	}
	e.b = append(e.b, byte(v))
}

func (e *encoder) uint(tag, v uint64) {
	if v != 0 {
		e.uvarint(tag<<3 | kindNumber)
		e.uvarint(v)
	}
}

// int is zigzag coded.
func (e *encoder) int(tag uint64, v int64) { e.uint(tag, uint64(v)<<1^uint64(v>>63)) }

func (e *encoder) bool(tag uint64, v bool) {
	if v {
		e.uint(tag, 1)
	}
}

// millis rounds up, so that a positive duration never becomes 0, which means none.
func (e *encoder) millis(tag uint64, d time.Duration) {
	if d > 0 {
		e.uint(tag, uint64((d-1)/time.Millisecond)+1)
	}
}

func (e *encoder) time(tag uint64, t time.Time) {
	if !t.IsZero() {
		e.int(tag, t.UnixNano())
	}
}

func (e *encoder) str(tag uint64, s string) {
	if s != "" {
		e.strs(tag, []string{s})
	}
}

func (e *encoder) strs(tag uint64, ss []string) {
	for _, s := range ss {
		e.uvarint(tag<<3 | kindBytes)
		e.uvarint(uint64(len(s)))
		e.b = append(e.b, s...)
	}
}

func (e *encoder) nested(tag uint64, m message) {
	var inner encoder
	m.put(&inner)
	e.strs(tag, []string{string(inner.b)})
}

// field is one decoded field; data aliases the input. Its setters answer false when the field is of
// another kind or out of range.
type field struct {
	tag  uint64
	kind byte
	num  uint64
	data []byte
}

func (f field) uint(p *uint64) bool {
	*p = f.num
	return f.kind == kindNumber
}

func (f field) int64(p *int64) bool {
	*p = int64(f.num>>1) ^ -int64(f.num&1)
	return f.kind == kindNumber
}

// setInt takes what fits into 32 bits.
func setInt[T ~int](f field, p *T) bool {
	var v int64
	ok := f.int64(&v) && v == int64(int32(v))
	*p = T(v)
	return ok
}

func (f field) bool(p *bool) bool {
	*p = f.num != 0
	return f.kind == kindNumber
}

const maxMillis = uint64(1<<63-1) / uint64(time.Millisecond)

func (f field) millis(p *time.Duration) bool {
	*p = time.Duration(min(f.num, maxMillis)) * time.Millisecond
	return f.kind == kindNumber
}

func (f field) time(p *time.Time) bool {
	var v int64
	ok := f.int64(&v)
	if *p = (time.Time{}); v != 0 {
		*p = time.Unix(0, v)
	}
	return ok
}

func (f field) str(p *string) bool {
	*p = string(f.data)
	return f.kind == kindBytes
}

// text takes what may have been written by anybody as valid UTF-8 of at most max bytes.
func (f field) text(p *string, max int) bool {
	*p = text.Bound(string(f.data), max)
	return f.kind == kindBytes
}

func (f field) strs(p *[]string) bool {
	*p = append(*p, string(f.data))
	return f.kind == kindBytes
}

func (f field) nested(m message) bool { return f.kind == kindBytes && decodeFields(f.data, m) }

// decodeFields fills m from b; false when b is malformed.
func decodeFields(b []byte, m message) bool {
	for len(b) > 0 {
		key, n := uvarint(b)
		if n == 0 {
			return false
		}
		b = b[n:]
		f := field{tag: key >> 3, kind: byte(key & 7)}
		if f.num, n = uvarint(b); n == 0 {
			return false
		}
		b = b[n:]
		switch f.kind {
		case kindNumber:
		case kindBytes:
			if f.num > uint64(len(b)) {
				return false
			}
			f.data, b = b[:f.num], b[f.num:]
		default:
			return false
		}
		if !m.set(f) {
			return false
		}
	}
	return true
}

// uvarint returns the value and its length, length 0 when b holds none.
func uvarint(b []byte) (v uint64, n int) {
	for i := 0; i < len(b) && i < 10; i++ {
		if i == 9 && b[i] > 1 {
			return 0, 0
		}
		v |= uint64(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}
