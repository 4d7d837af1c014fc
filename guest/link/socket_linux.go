package link

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// listen binds by way of the directory's descriptor, because a socket address holds 107 bytes and
// data directories may be longer.
func listen(path string) (*net.UnixListener, error) {
	if err := removeSocket(path, nil); err != nil {
		return nil, err
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	name := fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o666); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}

// removeSocket removes path if it is a socket; another kind of file is an error, none is not.
func removeSocket(path string, cause error) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return cause
	case err == nil && info.Mode()&os.ModeSocket == 0:
		err = errors.New("exists and is not a socket")
	case err == nil:
		err = os.Remove(path)
	}
	return errors.Join(cause, err)
}

// peerPID is the peer's pid when it connected, in this process's numbering.
func peerPID(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil {
		return 0, cerr
	}
	if err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

// socket is the transport to an init that has connected.
type socket struct {
	conn    *net.UnixConn
	decoder protocol.Decoder // of the reading goroutine
}

// receive blocks for the next message, whose descriptors are the caller's. After an error none is left open.
func (s *socket) receive() (m protocol.Message, fds []int, err error) {
	var buf [4 << 10]byte // on a stack that lasts as long as the connection
	var oob [128]byte     // more descriptors than it holds are dropped by the kernel, and break the message that names them
	defer func() {
		if err != nil {
			for _, fd := range s.decoder.Rest() {
				unix.Close(fd)
			}
		}
	}()
	for {
		m, fds, err := s.decoder.Next()
		if m != nil || err != nil {
			return m, fds, err
		}
		n, oobn, _, _, err := s.conn.ReadMsgUnix(buf[:], oob[:])
		if err != nil {
			return nil, nil, err
		}
		if n == 0 {
			return nil, nil, io.EOF
		}
		s.decoder.Feed(buf[:n], rights(oob[:oobn]))
	}
}

func rights(oob []byte) (fds []int) {
	if len(oob) == 0 {
		return nil
	}
	messages, _ := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		got, _ := unix.ParseUnixRights(&messages[i])
		fds = append(fds, got...)
	}
	return fds
}

func (s *socket) Send(o protocol.Outgoing) error {
	defer func() {
		for _, fd := range o.FDs {
			unix.Close(fd)
		}
	}()
	var oob []byte
	if len(o.FDs) > 0 {
		oob = unix.UnixRights(o.FDs...)
	}
	n, _, err := s.conn.WriteMsgUnix(o.Frame, oob, nil)
	if err == nil && n < len(o.Frame) {
		_, err = s.conn.Write(o.Frame[n:])
	}
	return err
}

func (s *socket) Close() error { return s.conn.Close() }
