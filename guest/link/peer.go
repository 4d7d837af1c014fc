package link

import (
	"errors"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// maxQueued frames may wait for an init that does not read; beyond that the connection is given up.
const maxQueued = 16384

// peer is one connection to a verified init.
type peer struct {
	conn    *net.UnixConn
	decoder protocol.Decoder // of the reading goroutine

	// Fixed once hello was read.
	booted  bool           // init has received Boot
	indexes bool           // it takes an index
	known   map[string]int // execs that init listed: id to pid, 0 when ended

	bootOnce sync.Once
	boot     chan struct{} // closed once status is set
	status   protocol.BootStatus

	// Guarded by Link.mu.
	booting     bool // Boot was sent
	reported    bool // that it is of another life
	frozen      bool // what init was told last, or told in its hello
	unconfirmed int  // each Freeze that was not answered yet
	token       uint64
	signals     map[uint64]chan<- *protocol.Signalled // by token; room for one answer

	done chan struct{} // closed with the connection

	mu     sync.Mutex
	queue  []outgoing
	closed bool
	wake   chan struct{} // one token: the queue has something, or closed is set
}

type outgoing struct {
	frame []byte
	fds   []int         // owned, closed after sending
	sent  chan struct{} // closed after sending; may be nil
}

func newPeer(conn *net.UnixConn) *peer {
	return &peer{
		conn: conn, boot: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1),
		signals: map[uint64]chan<- *protocol.Signalled{},
	}
}

func (p *peer) hello(h *protocol.Hello) {
	p.booted, p.frozen, p.indexes = h.Booted, h.Frozen, h.Indexes
	p.known = make(map[string]int, len(h.Execs))
	for _, e := range h.Execs {
		p.known[e.ID] = e.PID
	}
	if h.Booted && h.Status.State != protocol.BootPending {
		p.setBoot(h.Status)
	}
}

func (p *peer) setBoot(s protocol.BootStatus) {
	p.bootOnce.Do(func() {
		p.status = s
		close(p.boot)
	})
}

// receive blocks for the next message. Descriptors are not expected; the kernel drops them.
func (p *peer) receive() (protocol.Message, error) {
	var buf [16 << 10]byte
	for {
		m, _, err := p.decoder.Next()
		if m != nil || err != nil {
			return m, err
		}
		n, err := p.conn.Read(buf[:])
		if err != nil {
			return nil, err
		}
		p.decoder.Feed(buf[:n], nil)
	}
}

// send queues a message without descriptors; on a dead connection it does nothing.
func (p *peer) send(m protocol.Message) <-chan struct{} {
	sent := make(chan struct{})
	if frame, err := protocol.Encode(m, 0); err == nil {
		p.enqueue(outgoing{frame: frame, sent: sent})
	}
	return sent
}

// sendFiles queues a frame with duplicates of files; the caller may close its own at once.
func (p *peer) sendFiles(frame []byte, files []*os.File) error {
	o := outgoing{frame: frame}
	for _, f := range files {
		fd, err := duplicate(f)
		if err != nil {
			o.closeFiles()
			return err
		}
		o.fds = append(o.fds, fd)
	}
	p.enqueue(o)
	return nil
}

func (p *peer) enqueue(o outgoing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		o.closeFiles()
		return
	}
	p.queue = append(p.queue, o)
	if len(p.queue) > maxQueued {
		p.closeLocked()
		return
	}
	p.poke()
}

func (p *peer) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *peer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeLocked()
}

// closeLocked ends both goroutines of the connection.
func (p *peer) closeLocked() {
	if p.closed {
		return
	}
	p.closed = true
	close(p.done)
	p.conn.Close()
	p.poke()
}

// write sends what is queued until the connection is closed.
func (p *peer) write() {
	for broken := false; ; {
		<-p.wake
		p.mu.Lock()
		batch, closed := p.queue, p.closed
		p.queue = nil
		p.mu.Unlock()
		for _, o := range batch {
			if !closed && !broken && p.transmit(o) != nil {
				broken = true
				p.close()
			}
			o.closeFiles()
		}
		if closed {
			return
		}
	}
}

func (p *peer) transmit(o outgoing) error {
	var oob []byte
	if len(o.fds) > 0 {
		oob = unix.UnixRights(o.fds...)
	}
	n, _, err := p.conn.WriteMsgUnix(o.frame, oob, nil)
	if err == nil && n < len(o.frame) {
		_, err = p.conn.Write(o.frame[n:])
	}
	if err == nil && o.sent != nil {
		close(o.sent)
	}
	return err
}

func (o outgoing) closeFiles() {
	for _, fd := range o.fds {
		unix.Close(fd)
	}
}

func duplicate(f *os.File) (fd int, err error) {
	if f == nil {
		return -1, errors.New("link: a descriptor is missing")
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	if cerr := raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 3) }); cerr != nil {
		return -1, cerr
	}
	return fd, err
}
