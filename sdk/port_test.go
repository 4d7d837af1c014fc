package sdk_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/agbox-dev/agbox/sdk"
)

// answering has answer called with each connection to the port.
func answering(t *testing.T, answer func(net.Conn)) (port uint16) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				answer(conn)
			}()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// TestDialPort: a connection carries what is large both ways at once, and tells each end by itself.
func TestDialPort(t *testing.T) {
	c, _, _ := start(t)
	box := ready(t, c)
	conn, err := c.DialPort(t.Context(), box.ID, answering(t, func(conn net.Conn) { io.Copy(conn, conn) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	written := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		written <- errors.Join(err, conn.(interface{ CloseWrite() error }).CloseWrite())
	}()
	heard, err := io.ReadAll(conn)
	if err := errors.Join(err, <-written); err != nil || !bytes.Equal(heard, sent) {
		t.Errorf("%d bytes of %d came back: %v", len(heard), len(sent), err)
	}
	if _, err := conn.Write([]byte("more")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write after the end is %v", err)
	}
}

// TestDialPortRefused: who cannot connect hears why, and a connection ends with its sandbox.
func TestDialPortRefused(t *testing.T) {
	c, _, _ := start(t)
	box := ready(t, c)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := uint16(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	if _, err := c.DialPort(t.Context(), box.ID, free); !errors.Is(err, sdk.ErrPortClosed) {
		t.Errorf("where nothing listens it is %v", err)
	}
	if _, err := c.DialPort(t.Context(), "nobody", 80); !errors.Is(err, sdk.ErrSandboxNotFound) {
		t.Errorf("of nobody it is %v", err)
	}
	conn, err := c.DialPort(t.Context(), box.ID, answering(t, func(conn net.Conn) { io.Copy(conn, conn) }))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(t.Context(), box.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, sdk.ErrSandboxNotReady) {
		t.Errorf("after the sandbox was stopped a read is %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.DialPort(t.Context(), box.ID, free); !errors.Is(err, sdk.ErrSandboxNotReady) {
		t.Errorf("of a stopped one it is %v", err)
	}
}
