package protocol

// Where no socket can be shared, "agbox-init relay" inside the container stands between init and the daemon. It speaks to
// init as the daemon does. With the daemon it exchanges the same frames over its own standard input and output, without
// descriptors, and these of its own:
//
//	relay                                daemon
//	                               <-    Open{id, kinds, offsets}  before an Exec or a Boot (CommandID) that brings descriptors
//	                               <-    Open{id, again}           after a new start, for each that was brought before
//	                               <-    Ready{}                   after those: init is let in
//	Data{id, stream, offset}       ->                              what is in the files, and what comes out of a pipe
//	                               <-    Data{id}                  for the input
//	Credit{id}                     ->    or <-                     a chunk of an input or a pipe has gone its way
//	InputClosed{id}                ->                              the input has no reader any more
//	Closed{id}                     ->                              after Ack, once nobody writes to the files any more
//
// A Result of an id that was not opened is dropped, others come after all output that they count.
const (
	TypeOpen Type = 64 + iota
	TypeReady
	TypeData
	TypeCredit
	TypeInputClosed
	TypeClosed
)

const (
	// MaxData is the greatest number of bytes in a Data.
	MaxData = 64 << 10
	// DataWindow is how many Data to an input, or from a pipe, may be without their Credit.
	DataWindow = 8
)

// Kinds of descriptors. The relay makes its own of the same kind.
const (
	KindStdout = "stdout" // a file that is followed
	KindStderr = "stderr"
	KindIndex  = "index" // likewise: never ahead of what it tells of, nor its first byte behind that
	KindRecord = "record"
	KindInput  = "input"  // the read end of a FIFO
	KindKeeper = "keeper" // a write end of the same
	KindPipe   = "pipe"   // the write end of a pipe, whose reader is the daemon
	KindNull   = "null"
)

// Streams of Data to the daemon.
const (
	StreamStdout = iota
	StreamStderr
	StreamIndex
	StreamPipe
)

// Open tells what belongs to an exec.
type Open struct {
	ID string
	// Kinds are of the descriptors of the message that follows, in their order.
	Kinds []string
	// Stdout, Stderr and Index are how many bytes of the files the daemon has.
	Stdout, Stderr, Index uint64
	// Again: no message with descriptors follows.
	Again bool
}

// Ready ends the repetition of Opens.
type Ready struct{}

// Data is a part of a file from Offset on, or the next bytes of an input or a pipe: none is the end of the pipe.
type Data struct {
	ID     string
	Stream int
	Offset uint64
	Bytes  []byte
}

// Credit confirms one Data of an input or a pipe.
type Credit struct{ ID string }

// InputClosed tells that an input has no reader any more; what was not confirmed is lost.
type InputClosed struct{ ID string }

// Closed tells that the files of an exec were sent to their end, and are removed.
type Closed struct{ ID string }

func newRelayMessage(t Type) Message {
	switch t {
	case TypeOpen:
		return new(Open)
	case TypeReady:
		return new(Ready)
	case TypeData:
		return new(Data)
	case TypeCredit:
		return new(Credit)
	case TypeInputClosed:
		return new(InputClosed)
	case TypeClosed:
		return new(Closed)
	}
	return &Unknown{Kind: t}
}

func (*Open) Type() Type        { return TypeOpen }
func (*Ready) Type() Type       { return TypeReady }
func (*Data) Type() Type        { return TypeData }
func (*Credit) Type() Type      { return TypeCredit }
func (*InputClosed) Type() Type { return TypeInputClosed }
func (*Closed) Type() Type      { return TypeClosed }

func (m *Open) put(e *encoder) {
	e.str(1, m.ID)
	e.strs(2, m.Kinds)
	e.uint(3, m.Stdout)
	e.uint(4, m.Stderr)
	e.bool(5, m.Again)
	e.uint(6, m.Index)
}

func (m *Open) set(f field) bool {
	switch f.tag {
	case 1:
		return f.str(&m.ID)
	case 2:
		return f.strs(&m.Kinds)
	case 3:
		return f.uint(&m.Stdout)
	case 4:
		return f.uint(&m.Stderr)
	case 5:
		return f.bool(&m.Again)
	case 6:
		return f.uint(&m.Index)
	}
	return true
}

func (*Ready) put(*encoder)   {}
func (*Ready) set(field) bool { return true }

func (m *Data) put(e *encoder) {
	e.str(1, m.ID)
	e.int(2, int64(m.Stream))
	e.uint(3, m.Offset)
	if len(m.Bytes) > 0 {
		e.uvarint(4<<3 | kindBytes)
		e.uvarint(uint64(len(m.Bytes)))
		e.b = append(e.b, m.Bytes...)
	}
}

func (m *Data) set(f field) bool {
	switch f.tag {
	case 1:
		return f.str(&m.ID)
	case 2:
		return setInt(f, &m.Stream)
	case 3:
		return f.uint(&m.Offset)
	case 4:
		m.Bytes = append([]byte(nil), f.data...)
		return f.kind == kindBytes
	}
	return true
}

func (m *Credit) put(e *encoder)        { e.str(1, m.ID) }
func (m *Credit) set(f field) bool      { return setID(f, &m.ID) }
func (m *InputClosed) put(e *encoder)   { e.str(1, m.ID) }
func (m *InputClosed) set(f field) bool { return setID(f, &m.ID) }
func (m *Closed) put(e *encoder)        { e.str(1, m.ID) }
func (m *Closed) set(f field) bool      { return setID(f, &m.ID) }

func setID(f field, p *string) bool { return f.tag != 1 || f.str(p) }
