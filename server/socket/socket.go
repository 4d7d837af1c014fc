// Package socket is the place where clients reach the daemon.
package socket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// Socket is the daemon's socket. Only processes of this user, and root's, get to connect.
type Socket struct {
	path string

	mu       sync.Mutex
	listener *ownerListener
	file     os.FileInfo // of the socket that listener listens on
	closed   bool
}

// Listen makes the socket, mode 0600 in a directory of mode 0700, in place of a stale one. The caller holds the
// host lock, so nobody else listens there.
func Listen(path string) (*Socket, error) {
	s := &Socket{path: path}
	return s, s.listen()
}

// Check makes the socket again where somebody has removed it, or put something else in its place, and reports whether that
// was so. Connections that there are go on.
func (s *Socket) Check() (made bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, nil
	}
	if info, err := os.Lstat(s.path); err == nil && os.SameFile(info, s.file) {
		return false, nil
	}
	old := s.listener
	if err := s.listen(); err != nil {
		return false, err
	}
	return true, old.Close()
}

// listen is called by Listen, and with the lock held.
func (s *Socket) listen() error {
	dir := filepath.Dir(s.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("socket: cannot make the socket's directory: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("socket: cannot close the socket's directory to others: %w", err)
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("socket: cannot remove the stale socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: s.path})
	if err != nil {
		return fmt.Errorf("socket: cannot listen on %s: %w", s.path, err)
	}
	listener.SetUnlinkOnClose(false) // by then another one may have the name
	file, err := os.Lstat(s.path)
	if err == nil {
		err = os.Chmod(s.path, 0o600)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("socket: cannot close the socket to others: %w", err), listener.Close())
	}
	s.listener, s.file = &ownerListener{Listener: listener, uid: os.Getuid()}, file
	return nil
}

// Accept implements net.Listener.
func (s *Socket) Accept() (net.Conn, error) {
	for {
		s.mu.Lock()
		listener := s.listener
		s.mu.Unlock()
		conn, err := listener.Accept()
		if err == nil {
			return conn, nil
		}
		s.mu.Lock()
		replaced := s.listener != listener && !s.closed
		s.mu.Unlock()
		if !replaced {
			return nil, err
		}
	}
}

// Close implements net.Listener. It removes the socket, if that is still ours.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var err error
	if info, there := os.Lstat(s.path); there == nil && os.SameFile(info, s.file) {
		err = os.Remove(s.path)
	}
	return errors.Join(err, s.listener.Close())
}

// Addr implements net.Listener.
func (s *Socket) Addr() net.Addr { return s.listener.Addr() }
