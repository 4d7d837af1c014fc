package pid1

import (
	"os"
	"syscall"
	"time"

	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
)

const (
	reconnectEvery = 50 * time.Millisecond
	// maxQueued frames may wait for a daemon that does not read; beyond that the connection is
	// dropped, and the next one begins with all that is still of interest.
	maxQueued = 16384
)

// session is one connection to the daemon. Its reader is the dialer's goroutine. Go's poller waits for it, so that no thread has to.
type session struct {
	conn syscall.RawConn
	*protocol.Queue
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
		fd, err := kernel.Dial(path)
		if err != nil {
			continue
		}
		syscall.SetNonblock(fd, true)
		file := os.NewFile(uintptr(fd), path)
		conn, err := file.SyscallConn()
		if err != nil {
			file.Close()
			continue
		}
		s := &session{conn: conn}
		s.Queue = protocol.NewQueue(maxQueued, s.transmit, func() { syscall.Shutdown(fd, syscall.SHUT_RDWR) })
		writer := make(chan struct{})
		go func() {
			defer close(writer)
			s.Run()
		}()
		inbox <- received{from: s}
		s.read(inbox)
		s.Close()
		<-writer
		file.Close()
	}
}

func (s *session) read(inbox chan<- received) {
	var decoder protocol.Decoder
	defer func() { kernel.CloseAll(decoder.Rest()) }()
	buf := make([]byte, 16<<10)
	oob := make([]byte, syscall.CmsgSpace(4*protocol.MaxFiles))
	for {
		var n, oobn, flags int
		var err error
		ended := s.conn.Read(func(fd uintptr) bool {
			n, oobn, flags, _, err = syscall.Recvmsg(int(fd), buf, oob, syscall.MSG_CMSG_CLOEXEC)
			return err != syscall.EAGAIN
		})
		if err == syscall.EINTR {
			continue
		}
		if ended != nil || err != nil || n == 0 {
			return
		}
		fds := rights(oob[:oobn])
		decoder.Feed(buf[:n], fds)
		if flags&syscall.MSG_CTRUNC != 0 {
			kernel.Warn("the daemon sent more descriptors than fit; reconnecting")
			return
		}
		for {
			m, fds, err := decoder.Next()
			if err != nil {
				kernel.Warn("the daemon sent what is not of this protocol; reconnecting: " + err.Error())
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

func (s *session) transmit(o protocol.Outgoing) error {
	defer kernel.CloseAll(o.FDs)
	var oob []byte
	if len(o.FDs) > 0 {
		oob = syscall.UnixRights(o.FDs...)
	}
	for frame := o.Frame; len(frame) > 0; {
		var n int
		var err error
		ended := s.conn.Write(func(fd uintptr) bool {
			n, err = syscall.SendmsgN(int(fd), frame, oob, nil, syscall.MSG_NOSIGNAL)
			return err != syscall.EAGAIN
		})
		if ended != nil {
			return ended
		}
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		frame, oob = frame[n:], nil
	}
	return nil
}
