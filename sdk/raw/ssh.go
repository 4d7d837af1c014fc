package raw

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// maxComplaint is how much of what ssh says is kept.
const maxComplaint = 4 << 10

// sshConn is a connection to the daemon's socket on another machine, by an ssh that runs `agbox dial-stdio` there.
type sshConn struct {
	net.Conn
	command   *exec.Cmd
	complaint *complaint
	said      func(string) // gets what ssh said, when it ended
	finished  sync.Once
}

// dialSSH returns as soon as ssh runs; what it fails with, said is told. ssh has no terminal, so it asks nothing: keys
// come from an agent or have no passphrase.
func dialSSH(to *url.URL, said func(string)) (net.Conn, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("raw: no socket for ssh: %w", err)
	}
	defer ours.Close() // FileConn has its own
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, fmt.Errorf("raw: no socket for ssh: %w", err)
	}
	args := []string{"-T"}
	if user := to.User.Username(); user != "" {
		args = append(args, "-l", user)
	}
	if port := to.Port(); port != "" {
		args = append(args, "-p", port)
	}
	s := &sshConn{Conn: conn, complaint: &complaint{}, said: said}
	s.command = exec.Command("ssh", append(args, "--", to.Hostname(), "agbox", "dial-stdio")...)
	s.command.Stdin, s.command.Stdout, s.command.Stderr = theirs, theirs, s.complaint
	s.command.WaitDelay = time.Second                          // another program may have its stderr, such as a master of connections
	s.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the command, not for its connection
	if err := s.command.Start(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("raw: cannot run ssh: %w", err)
	}
	return s, nil
}

func socketPair() (*os.File, *os.File, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	syscall.CloseOnExec(pair[0])
	syscall.CloseOnExec(pair[1])
	return os.NewFile(uintptr(pair[0]), "ssh"), os.NewFile(uintptr(pair[1]), "ssh"), nil
}

func (s *sshConn) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n == 0 && errors.Is(err, io.EOF) {
		s.finish()
		if said := s.complaint.String(); said != "" {
			s.said(said)
		}
	}
	return n, err
}

// Close ends ssh and waits for it.
func (s *sshConn) Close() error {
	err := s.Conn.Close()
	_ = s.command.Process.Kill() // it may have ended
	s.finish()
	return err
}

// lastWords is how long an ssh that has ended the connection has for the rest.
const lastWords = 5 * time.Second

func (s *sshConn) finish() {
	s.finished.Do(func() {
		late := time.AfterFunc(lastWords, func() { _ = s.command.Process.Kill() })
		defer late.Stop()
		_ = s.command.Wait() // how it ended, it has said
	})
}

// complaint keeps the beginning of what ssh writes to its stderr.
type complaint struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (c *complaint) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text.Write(p[:min(len(p), maxComplaint-c.text.Len())])
	return len(p), nil
}

func (c *complaint) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.TrimSpace(c.text.String())
}
