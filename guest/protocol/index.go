package protocol

import "time"

// An index file tells in which order, and when, a command's output went to its two files:
//
//	byte 0   IndexVersion, on the disk before the first byte of output is
//	then     for each run of output to one of the two:
//	         uvarint(length<<1 | stream)   stream is 0 for stdout, 1 for stderr
//	         uvarint(microseconds)         since the run before, the first since 1970; a clock that
//	                                       was set back stands still until it has caught up
//
// A run takes 3 to 6 bytes as a rule, 2 at least; the first one has 8 for its time. Runs follow each
// other without gap from the beginning of both files. A torn last one is the end of the index, which
// may tell of less than there is in the files, and never of more.
const IndexVersion = 1

// MaxRun is the greatest length of a run in the index, in bytes.
const MaxRun = 20

// AppendRun appends a run of length bytes to b, 1 at least and less than 1<<63.
func AppendRun(b []byte, stderr bool, length, micros uint64) []byte {
	e := encoder{b: b}
	v := length << 1
	if stderr {
		v |= 1
	}
	e.uvarint(v)
	e.uvarint(micros)
	return e.b
}

// Run is some output of a command: Length bytes of one stream, the first of which was written At.
type Run struct {
	Stderr bool
	Length int64
	At     time.Time
}

// IndexDecoder reads an index that may still grow. It holds less than MaxRun bytes of what it was fed
// and has not told. The zero value is ready; it belongs to one goroutine.
type IndexDecoder struct {
	rest   []byte
	begun  bool
	ended  bool // it goes on with what is no run
	micros uint64
}

// Feed appends what was read; data is copied. Next is to be called until it has no more.
func (d *IndexDecoder) Feed(data []byte) {
	if d.ended {
		return
	}
	if !d.begun && len(data) > 0 {
		d.begun, d.ended = true, data[0] != IndexVersion
		data = data[1:]
	}
	d.rest = append(d.rest, data...)
}

// Next returns the next run, false when more has to be read first. Of an index of another version,
// or from damage on, there is no more.
func (d *IndexDecoder) Next() (Run, bool) {
	head, n := uvarint(d.rest)
	micros, m := uvarint(d.rest[n:])
	switch {
	case d.ended:
		return Run{}, false
	case n == 0 || m == 0:
		d.ended = len(d.rest) >= MaxRun
		return Run{}, false
	case head < 2 || micros > maxMicros-d.micros:
		d.ended = true
		return Run{}, false
	}
	d.micros += micros
	if d.rest = d.rest[n+m:]; len(d.rest) == 0 {
		d.rest = nil
	}
	return Run{Stderr: head&1 != 0, Length: int64(head >> 1), At: time.UnixMicro(int64(d.micros))}, true
}

// maxMicros is the end of the year 9999, after which there are no timestamps.
const maxMicros = 253402300799999999
