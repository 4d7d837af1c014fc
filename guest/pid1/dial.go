package pid1

import (
	"syscall"

	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// handDial hands the daemon a connection to the sandbox's loopback and carries none of its bytes. It does not wait: the daemon
// finds out what becomes of a connection that has only begun.
func (s *session) handDial(m *protocol.Dial) {
	fd, err := kernel.DialLoopback(m.Port, m.V6, syscall.SOCK_NONBLOCK)
	if err != nil {
		errno, _ := err.(syscall.Errno)
		_ = s.Send(&protocol.Dialed{Token: m.Token, Errno: int(errno)})
		return
	}
	_ = s.Send(&protocol.Dialed{Token: m.Token}, fd)
}
