package protocol

// Dial begins a connection to a TCP port on the sandbox's loopback.
type Dial struct {
	// Token is the daemon's choice; the answer carries it.
	Token uint64
	Port  uint16
	// V6: ::1, else 127.0.0.1.
	V6 bool
}

// Dialed answers Dial. Descriptor: the socket, whose connection is made or begun; none where there is an Errno.
type Dialed struct {
	Token uint64
	Errno int
}

func (*Dial) Type() Type   { return TypeDial }
func (*Dialed) Type() Type { return TypeDialed }

func (m *Dial) put(e *encoder) {
	e.uint(1, m.Token)
	e.uint(2, uint64(m.Port))
	e.bool(3, m.V6)
}

func (m *Dial) set(f field) bool {
	switch f.tag {
	case 1:
		return f.uint(&m.Token)
	case 2:
		return setUint16(f, &m.Port)
	case 3:
		return f.bool(&m.V6)
	}
	return true
}

func (m *Dialed) put(e *encoder) {
	e.uint(1, m.Token)
	e.int(2, int64(m.Errno))
}

func (m *Dialed) set(f field) bool {
	switch f.tag {
	case 1:
		return f.uint(&m.Token)
	case 2:
		return setInt(f, &m.Errno)
	}
	return true
}
