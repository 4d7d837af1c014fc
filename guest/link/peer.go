package link

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// maxQueued frames may wait for an init that does not read; beyond that the connection is given up.
const maxQueued = 16384

// Transport is a way to init that messages go on one after the other.
type Transport interface {
	// Send sends a message, and takes over its descriptors. An error ends the connection. It must not wait for the Link.
	Send(protocol.Outgoing) error
	// Close ends the connection, and a Send that waits. It must not wait for the Link, nor for Send.
	Close() error
}

// Peer is one connection to a verified init.
type Peer struct {
	link  *Link
	queue *protocol.Queue

	// Fixed once hello was read.
	framed bool           // the transport carries frames, and does not look at messages
	booted bool           // init has received Boot
	known  map[string]int // execs that init listed: id to pid, 0 when ended

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
	dials       map[uint64]chan<- dialed              // likewise

	done chan struct{} // closed with the connection

	written chan struct{} // closed when nothing is sent any more
}

// newPeer takes the transport over.
func (l *Link) newPeer(t Transport, h *protocol.Hello) (*Peer, error) {
	if h.Version != protocol.Version {
		t.Close()
		return nil, fmt.Errorf("link: init speaks version %d of the protocol and not %d", h.Version, protocol.Version)
	}
	p := &Peer{
		link: l, boot: make(chan struct{}), done: make(chan struct{}), written: make(chan struct{}),
		signals: map[uint64]chan<- *protocol.Signalled{}, dials: map[uint64]chan<- dialed{},
		booted: h.Booted, frozen: h.Frozen, known: make(map[string]int, len(h.Execs)),
	}
	_, p.framed = t.(*socket)
	for _, e := range h.Execs {
		p.known[e.ID] = e.PID
	}
	if h.Booted && h.Status.State != protocol.BootPending {
		p.setBoot(h.Status)
	}
	p.queue = protocol.NewQueue(maxQueued, t.Send, func() {
		close(p.done)
		t.Close()
	})
	return p, nil
}

func (p *Peer) setBoot(s protocol.BootStatus) {
	p.bootOnce.Do(func() {
		p.status = s
		close(p.boot)
	})
}

// send queues a message without descriptors; on a dead connection it does nothing.
func (p *Peer) send(m protocol.Message) {
	if !p.framed {
		_ = p.queue.Send(m)
	} else if frame, err := protocol.Encode(m, 0); err == nil {
		p.queue.Add(protocol.Outgoing{Frame: frame})
	}
}

// sendFiles queues a message with duplicates of files; the caller may close its own at once.
func (p *Peer) sendFiles(m protocol.Message, files []*os.File) error {
	var fds []int
	for _, f := range files {
		fd, err := duplicate(f)
		if err != nil {
			closeAll(fds)
			return err
		}
		fds = append(fds, fd)
	}
	return p.queue.Send(m, fds...)
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
