package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// dialed is init's answer to a Dial.
type dialed struct {
	errno int
	fds   []int
}

// Dial connects to a TCP port on the sandbox's loopback, at 127.0.0.1 or else at ::1. The connection is the kernel's own: closing
// the link does not end it. It waits for init. Errors: ErrPortClosed where nothing listens there; ErrClosed; ErrLost
// where the connection to init broke; ctx's own. It is for links that init has connected to by itself.
func (l *Link) Dial(ctx context.Context, port uint16) (*net.TCPConn, error) {
	p, err := l.await(ctx, nil, true)
	if err != nil {
		return nil, err
	}
	conn, err := p.dial(ctx, port, false)
	if refused(err) {
		conn, err = p.dial(ctx, port, true)
	}
	switch {
	case err == nil:
		return conn, nil
	case refused(err):
		return nil, fmt.Errorf("%w: %d", ErrPortClosed, port)
	}
	return nil, fmt.Errorf("dial port %d: %w", port, err)
}

// refused reports that nothing listens at an address, or that there is no such address, as without IPv6.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) ||
		errors.Is(err, syscall.ENETUNREACH)
}

func (p *Peer) dial(ctx context.Context, port uint16, v6 bool) (_ *net.TCPConn, err error) {
	l := p.link
	answer := make(chan dialed, 1)
	l.mu.Lock()
	p.token++
	token := p.token
	p.dials[token] = answer
	p.send(&protocol.Dial{Token: token, Port: port, V6: v6})
	l.mu.Unlock()
	var d dialed
	select {
	case d = <-answer:
	case <-ctx.Done():
		err = ctx.Err()
	case <-p.done:
		err = ErrLost
	}
	if err != nil {
		l.mu.Lock()
		delete(p.dials, token)
		l.mu.Unlock()
		select {
		case d = <-answer: // it came at the same moment
		default:
		}
		closeAll(d.fds)
		return nil, err
	}
	if d.errno != 0 || len(d.fds) != 1 {
		closeAll(d.fds)
		return nil, syscall.Errno(d.errno)
	}
	return connected(ctx, d.fds[0])
}

// connected waits until a connection that was begun is made, and takes the descriptor over.
func connected(ctx context.Context, fd int) (*net.TCPConn, error) {
	file := os.NewFile(uintptr(fd), "sandbox port")
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		conn.Close()
		return nil, errors.New("link: what init gave is no TCP connection")
	}
	raw, err := tcp.SyscallConn()
	if err == nil {
		stop := context.AfterFunc(ctx, func() { tcp.SetWriteDeadline(time.Unix(1, 0)) })
		var state error
		err = raw.Write(func(fd uintptr) bool {
			var code int
			if code, state = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); state != nil {
				return true
			}
			if code != 0 {
				state = syscall.Errno(code)
				return true
			}
			_, state = unix.Getpeername(int(fd))
			return !errors.Is(state, unix.ENOTCONN)
		})
		err = errors.Join(err, state)
		if !stop() {
			err = errors.Join(context.Cause(ctx), err)
		}
	}
	if err != nil {
		tcp.Close()
		return nil, err
	}
	return tcp, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
