package protocol

// Size is a terminal's, in characters.
type Size struct{ Rows, Columns uint16 }

// Resize sets the size of a running command's terminal; the kernel sends its foreground processes WINCH. It is answered by
// Signalled, with SignalRefused and ENOTTY when the command has no terminal.
type Resize struct {
	// Token is the daemon's choice, as in Signal; the answer carries it.
	Token uint64
	ID    string
	Size  Size
}

// CloseStdin ends the input of a command for good: its readers meet the end of it when they have read what is in it, and
// when the daemon holds no write end any more. At a terminal the end-of-file character is typed. It is not answered, and
// does nothing to a command that has no input, or whose input was closed before.
type CloseStdin struct{ ID string }

func (m *Size) put(e *encoder) {
	e.uint(1, uint64(m.Rows))
	e.uint(2, uint64(m.Columns))
}

func (m *Size) set(f field) bool {
	switch f.tag {
	case 1:
		return setUint16(f, &m.Rows)
	case 2:
		return setUint16(f, &m.Columns)
	}
	return true
}

func setUint16(f field, p *uint16) bool {
	*p = uint16(f.num)
	return f.kind == kindNumber && f.num == uint64(*p)
}

func (m *Resize) put(e *encoder) {
	e.uint(1, m.Token)
	e.str(2, m.ID)
	e.nested(3, &m.Size)
}

func (m *Resize) set(f field) bool {
	switch f.tag {
	case 1:
		return f.uint(&m.Token)
	case 2:
		return f.str(&m.ID)
	case 3:
		return f.nested(&m.Size)
	}
	return true
}

func (m *CloseStdin) put(e *encoder) { e.str(1, m.ID) }

func (m *CloseStdin) set(f field) bool {
	if f.tag == 1 {
		return f.str(&m.ID)
	}
	return true
}
