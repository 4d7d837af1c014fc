package protocol

// A record file holds one result:
//
//	byte 0-3   "AGR1"
//	byte 4-7   length of the body, little endian
//	byte 8-15  FNV-1a over the body, little endian
//	body       the fields of Result
const (
	recordMagic  = "AGR1"
	recordHeader = 16
)

// EncodeRecord returns the content of r's record file.
func EncodeRecord(r *Result) []byte {
	e := encoder{b: make([]byte, recordHeader, 256)}
	r.put(&e)
	body := e.b[recordHeader:]
	copy(e.b, recordMagic)
	putLittle(e.b[4:8], uint64(len(body)))
	putLittle(e.b[8:16], checksum(body))
	return e.b
}

// ParseRecord reads what EncodeRecord wrote. False means that the file holds no result: it is
// empty, torn, damaged or of another kind.
func ParseRecord(b []byte) (Result, bool) {
	if len(b) < recordHeader || string(b[:4]) != recordMagic {
		return Result{}, false
	}
	body := b[recordHeader:]
	if little(b[4:8]) != uint64(len(body)) || little(b[8:16]) != checksum(body) {
		return Result{}, false
	}
	var r Result
	if !decodeFields(body, &r) {
		return Result{}, false
	}
	return r, true
}

func checksum(b []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

func putLittle(b []byte, v uint64) {
	for i := range b {
		b[i] = byte(v >> (8 * i))
	}
}

func little(b []byte) (v uint64) {
	for i, c := range b {
		v |= uint64(c) << (8 * i)
	}
	return v
}
