package protocol

// MaxFrame is the greatest length of a frame's body.
const MaxFrame = 4 << 20

// MaxFiles is the greatest number of descriptors that a peer may have in flight on a connection.
const MaxFiles = 64

const (
	magic      = 0xA1
	headerSize = 8
)

// Encode returns the frame of m, to be sent with nfds descriptors on its first byte. The only error
// is ErrTooBig.
func Encode(m Message, nfds int) ([]byte, error) { return appendFrame(make([]byte, 0, 256), m, nfds) }

func appendFrame(b []byte, m Message, nfds int) ([]byte, error) {
	var header [headerSize]byte
	e := encoder{b: append(b, header[:]...)}
	m.put(&e)
	frame := e.b[len(b):]
	n := len(frame) - headerSize
	if n > MaxFrame {
		return nil, ErrTooBig
	}
	copy(frame, []byte{magic, byte(m.Type()), byte(nfds), 0, byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})
	return e.b, nil
}

// parseHeader returns the length of the body.
func parseHeader(h []byte) (t Type, nfds int, n int, err error) {
	size := little(h[4:headerSize])
	switch {
	case h[0] != magic || h[3] != 0:
		return 0, 0, 0, ErrMalformed
	case size > MaxFrame:
		return 0, 0, 0, ErrTooBig
	}
	return Type(h[1]), int(h[2]), int(size), nil
}

// Decoder cuts a received byte stream into messages. It holds the bytes and the descriptors that
// have arrived and are not consumed yet: never more than one frame and one read. The zero value is
// ready; it belongs to one goroutine.
type Decoder struct {
	buf []byte
	fds []int
}

// Feed appends what one receive returned; data is copied.
func (d *Decoder) Feed(data []byte, fds []int) {
	d.buf = append(d.buf, data...)
	d.fds = append(d.fds, fds...)
}

// Next returns the next message and its descriptors, which are the caller's from then on. A nil
// message means that more bytes are needed. After an error the stream is lost: close it, and the
// descriptors of Rest.
func (d *Decoder) Next() (Message, []int, error) {
	if len(d.fds) > MaxFiles {
		return nil, nil, ErrMalformed
	}
	if len(d.buf) < headerSize {
		return nil, nil, nil
	}
	t, nfds, n, err := parseHeader(d.buf)
	if err != nil {
		return nil, nil, err
	}
	if len(d.buf)-headerSize < n {
		return nil, nil, nil
	}
	m := newMessage(t)
	if nfds > len(d.fds) || !decodeFields(d.buf[headerSize:headerSize+n], m) {
		return nil, nil, ErrMalformed
	}
	fds := d.fds[:nfds:nfds]
	d.fds = d.fds[nfds:]
	if d.buf = d.buf[headerSize+n:]; len(d.buf) == 0 {
		d.buf = nil
	}
	return m, fds, nil
}

// Rest returns the descriptors that no message has claimed and forgets them.
func (d *Decoder) Rest() []int {
	fds := d.fds
	d.fds = nil
	return fds
}
