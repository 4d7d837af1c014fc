package pid1

import (
	"sync"
	"syscall"
	"time"

	"github.com/agbox-dev/agbox/guest/protocol"
)

const (
	reconnectEvery = 50 * time.Millisecond
	// maxQueued frames may wait for a daemon that does not read; beyond that the connection is
	// dropped, and the next one begins with all that is still of interest.
	maxQueued = 16384
)

// session is one connection to the daemon. Its reader is the dialer's goroutine.
type session struct {
	fd int

	mu     sync.Mutex
	queue  []outgoing
	closed bool
	wake   chan struct{} // one token: the queue has something, or closed is set
}

type outgoing struct {
	frame []byte
	sent  chan struct{} // closed after the frame was sent or given up; may be nil
}

// received is a message with its descriptors. A nil message announces a new session.
type received struct {
	from *session
	m    protocol.Message
	fds  []int
}

// dial connects for ever and passes on what arrives.
func dial(path string, inbox chan<- received) {
	for ; ; time.Sleep(reconnectEvery) {
		fd, err := connect(path)
		if err != nil {
			continue
		}
		s := &session{fd: fd, wake: make(chan struct{}, 1)}
		writer := make(chan struct{})
		go func() {
			defer close(writer)
			s.write()
		}()
		inbox <- received{from: s}
		s.read(inbox)
		s.close()
		<-writer
		syscall.Close(fd)
	}
}

func connect(path string) (int, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		syscall.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (s *session) read(inbox chan<- received) {
	var decoder protocol.Decoder
	defer func() { closeAll(decoder.Rest()) }()
	buf := make([]byte, 16<<10)
	oob := make([]byte, syscall.CmsgSpace(4*protocol.MaxFiles))
	for {
		n, oobn, flags, _, err := syscall.Recvmsg(s.fd, buf, oob, syscall.MSG_CMSG_CLOEXEC)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		fds := rights(oob[:oobn])
		decoder.Feed(buf[:n], fds)
		if flags&syscall.MSG_CTRUNC != 0 {
			warn("the daemon sent more descriptors than fit; reconnecting")
			return
		}
		for {
			m, fds, err := decoder.Next()
			if err != nil {
				warn("the daemon sent what is not of this protocol; reconnecting: " + err.Error())
				return
			}
			if m == nil {
				break
			}
			inbox <- received{from: s, m: m, fds: fds}
		}
	}
}

func rights(oob []byte) (fds []int) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		got, _ := syscall.ParseUnixRights(&messages[i])
		fds = append(fds, got...)
	}
	return fds
}

// send queues a frame; it never blocks.
func (s *session) send(frame []byte) { s.enqueue(outgoing{frame: frame}) }

// flush returns a channel that is closed once all that was queued before is sent or given up.
func (s *session) flush() <-chan struct{} {
	o := outgoing{sent: make(chan struct{})}
	s.enqueue(o)
	return o.sent
}

func (s *session) enqueue(o outgoing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.queue) >= maxQueued {
		s.closeLocked()
		o.done()
		return
	}
	s.queue = append(s.queue, o)
	s.poke()
}

func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked()
}

// closeLocked ends reader and writer; the descriptor itself is the dialer's to close.
func (s *session) closeLocked() {
	if !s.closed {
		s.closed = true
		syscall.Shutdown(s.fd, syscall.SHUT_RDWR)
		s.poke()
	}
}

func (s *session) write() {
	for broken := false; ; {
		<-s.wake
		s.mu.Lock()
		batch, closed := s.queue, s.closed
		s.queue = nil
		s.mu.Unlock()
		for _, o := range batch {
			if !broken && !s.transmit(o.frame) {
				broken = true
				s.close()
			}
			o.done()
		}
		if closed {
			return
		}
	}
}

func (s *session) transmit(frame []byte) bool {
	for len(frame) > 0 {
		n, err := syscall.SendmsgN(s.fd, frame, nil, nil, syscall.MSG_NOSIGNAL)
		if err != nil && err != syscall.EINTR {
			return false
		}
		frame = frame[max(n, 0):]
	}
	return true
}

func (o outgoing) done() {
	if o.sent != nil {
		close(o.sent)
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		syscall.Close(fd)
	}
}
