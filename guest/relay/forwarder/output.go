package forwarder

import (
	"os"
	"syscall"
	"unsafe"

	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// forwarder follows the files of all execs and writes to the daemon, a chunk of each file in turn. It waits when the daemon does
// not read, and holds up nobody by that: the files grow on.
type forwarder struct {
	fromInit chan protocol.Message
	say      chan protocol.Message // of inputs and pipes
	opens    chan openRequest
	acks     chan string
	changes  chan []change

	execs   map[string]*relayed
	known   map[string]bool // those that PID 1 has its descriptors for
	watched map[int32]*tail
	inotify int     // -1: the kernel grants none; output is sent when a command has ended
	dirty   []*tail // in turn
	buf     []byte
}

// relayed is an exec that was opened.
type relayed struct {
	id      string
	tails   []*tail
	input   *relayInput
	result  *protocol.Result // waits for what is sent of the tails
	acked   bool
	removed bool
}

// tail is one file of output.
type tail struct {
	of     *relayed
	stream int
	fd     int
	watch  int32 // -1: none
	sent   uint64
	until  uint64 // what the result counts
	dirty  bool
	open   bool // for writing, by PID 1

	// Of an index: what is before allowed was written when no output was beyond need.
	allowed uint64
	need    [2]uint64
}

type openRequest struct {
	*protocol.Open
	answer chan<- opened
}

type opened struct {
	fds     []int
	input   *relayInput
	pipe    *os.File
	refused bool
}

type change struct {
	watch  int32
	closed bool
}

func (r *relay) prepare() {
	r.forwarder = forwarder{
		fromInit: make(chan protocol.Message), say: make(chan protocol.Message), opens: make(chan openRequest),
		acks: make(chan string), changes: make(chan []change),
		execs: map[string]*relayed{}, known: map[string]bool{}, watched: map[int32]*tail{},
		buf: make([]byte, protocol.MaxData),
	}
	var err error
	if r.inotify, err = syscall.InotifyInit1(syscall.IN_CLOEXEC); err != nil {
		r.inotify = -1
		kernel.Warn("relay: output comes late: fs.inotify.max_user_instances of the engine's machine is too low: " + err.Error())
		return
	}
	go r.readChanges()
}

func (r *relay) readChanges() {
	buf := make([]byte, 16<<10)
	for {
		n, err := syscall.Read(r.inotify, buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			panic("inotify: " + err.Error())
		}
		var list []change
		for rest := buf[:n]; len(rest) >= syscall.SizeofInotifyEvent; {
			e := (*syscall.InotifyEvent)(unsafe.Pointer(&rest[0]))
			list = append(list, change{e.Wd, e.Mask&syscall.IN_CLOSE_WRITE != 0})
			rest = rest[syscall.SizeofInotifyEvent+int(e.Len):]
		}
		r.changes <- list
	}
}

// carry is the forwarder's work; it ends with the process.
func (r *relay) carry() {
	always := make(chan struct{})
	close(always)
	for {
		var more chan struct{}
		if len(r.dirty) > 0 {
			more = always
		}
		select {
		case m := <-r.fromInit:
			r.passOn(m)
		case m := <-r.say:
			r.write(m)
		case request := <-r.opens:
			request.answer <- r.open(request.Open)
		case id := <-r.acks:
			if e := r.execs[id]; e != nil {
				e.acked = true
				for _, t := range e.tails {
					if t.watch < 0 {
						t.open = t.isOpen()
					}
				}
				r.settle(e)
			}
		case list := <-r.changes:
			for _, c := range list {
				r.changed(c)
			}
		case <-more:
			r.step()
		}
	}
}

func (r *relay) changed(c change) {
	if c.watch == -1 { // the kernel's queue was full
		for _, t := range r.watched {
			t.open = t.isOpen()
			r.mark(t)
		}
		return
	}
	if t := r.watched[c.watch]; t != nil {
		t.open = t.open && !c.closed
		r.mark(t)
	}
}

func (r *relay) mark(t *tail) {
	if !t.dirty {
		t.dirty = true
		r.dirty = append(r.dirty, t)
	}
}

// step sends one chunk.
func (r *relay) step() {
	t := r.dirty[0]
	r.dirty = r.dirty[1:]
	t.dirty = false
	if t.of.removed {
		return
	}
	buf := r.buf
	if t.stream == protocol.StreamIndex {
		if r.behind(t) {
			return
		}
		buf = buf[:min(t.allowed-t.sent, uint64(len(buf)))]
	} else if x := t.of.tail(protocol.StreamIndex); x != nil && x.sent == 0 {
		r.sendSome(x, buf[:1])
	}
	n, err := r.sendSome(t, buf)
	if n > 0 || err == syscall.EINTR {
		r.mark(t)
	} else {
		t.until = 0 // there is no more, whatever was counted
	}
	r.settle(t.of)
}

// behind tells whether an index has to wait for output that it may tell of, and sees to it that this is sent.
func (r *relay) behind(x *tail) bool {
	if x.allowed <= x.sent {
		x.allowed = x.size()
		for i := range x.need {
			if t := x.of.tail(i); t != nil {
				x.need[i] = t.size()
			}
		}
	}
	late := false
	for i, need := range x.need {
		if t := x.of.tail(i); t != nil && t.sent < min(need, t.size()) {
			r.mark(t)
			late = true
		}
	}
	if late {
		r.mark(x)
	}
	x.allowed = max(x.allowed, x.sent)
	return late
}

func (e *relayed) tail(stream int) *tail {
	for _, t := range e.tails {
		if t.stream == stream {
			return t
		}
	}
	return nil
}

// sendSome sends what is next in a file, as much as buf takes.
func (r *relay) sendSome(t *tail, buf []byte) (int, error) {
	n, err := syscall.Pread(t.fd, buf, int64(t.sent))
	if n > 0 {
		if in := t.of.input; in != nil && in.gone() { // before it, what the output may tell of
			r.write(&protocol.InputClosed{ID: in.id})
			in.end()
			t.of.input = nil
		}
		r.write(&protocol.Data{ID: t.of.id, Stream: t.stream, Offset: t.sent, Bytes: buf[:n]})
		t.sent += uint64(n)
	}
	return n, err
}

// settle passes on the result that all output was sent for, and lets go of what is over.
func (r *relay) settle(e *relayed) {
	for _, t := range e.tails {
		if e.result != nil && t.sent < t.until {
			return
		}
	}
	if e.result != nil {
		r.write(e.result)
		e.result = nil
	}
	for _, t := range e.tails {
		if t.dirty || t.open {
			return
		}
	}
	if e.acked {
		r.remove(e)
		r.write(&protocol.Closed{ID: e.id})
	}
}

// passOn passes on what PID 1 says.
func (r *relay) passOn(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.Unknown:
		return
	case *protocol.Hello:
		for _, e := range m.Execs {
			r.known[e.ID] = true
		}
	case *protocol.Result:
		e := r.execs[m.ID]
		if e == nil {
			return
		}
		if e.input != nil {
			e.input.end()
			e.input = nil
		}
		e.result = m
		for _, t := range e.tails {
			t.until = t.size()
			r.mark(t)
		}
		r.settle(e)
		return
	}
	r.write(m)
}

func (r *relay) write(m protocol.Message) {
	frame, err := protocol.Encode(m, 0)
	if err != nil {
		kernel.Warn("relay: " + err.Error())
		return
	}
	for len(frame) > 0 {
		n, err := syscall.Write(1, frame)
		if err != nil && err != syscall.EINTR {
			r.leave()
		}
		frame = frame[max(n, 0):]
	}
}
