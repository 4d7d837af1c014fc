package socket_test

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/agbox-dev/agbox/server/socket"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

// TestStrangersAreTurnedAway: whoever gets past the modes of socket and directory is asked who it is.
func TestStrangersAreTurnedAway(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		skiplog.Skip(t, "only root can come as somebody else")
	}
	path := filepath.Join(t.TempDir(), "s", "agboxd.sock")
	listener, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for dir := filepath.Dir(path); dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 2)
	go func() {
		defer close(accepted)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()

	stranger := dialAs(t, path, 12345)
	defer stranger.Close()
	if n, err := stranger.Read(make([]byte, 1)); err == nil {
		t.Errorf("the stranger reads %d bytes", n)
	}
	owner, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	conn := <-accepted // in order: the stranger's would come first
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Read(make([]byte, 1)); err != nil {
		t.Errorf("the owner was not let in first: %v", err)
	}
	listener.Close()
	for conn := range accepted {
		conn.Close()
		t.Error("somebody else was let in")
	}
}

// dialAs connects as another user. Only the thread changes its user, and it ends with the goroutine.
func dialAs(t *testing.T, path string, uid int) net.Conn {
	t.Helper()
	var conn net.Conn
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock it
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			err = errno
			return
		}
		conn, err = net.Dial("unix", path)
	}()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
