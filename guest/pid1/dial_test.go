package pid1_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/agbox-dev/agbox/guest/link"
)

// listenInside listens inside the sandbox, whose loopback it brings up. The thread comes back: where it ended, so would each init that
// it has started.
func (b *box) listenInside(address string) net.Listener {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	outside, err := netns.Get()
	b.check(err)
	defer outside.Close()
	inside, err := netns.GetFromPid(b.cmd.Process.Pid)
	b.check(err)
	defer inside.Close()
	b.check(netns.Set(inside))
	defer func() { b.check(netns.Set(outside)) }()
	loopback, err := netlink.LinkByName("lo")
	b.check(err)
	b.check(netlink.LinkSetUp(loopback))
	l, err := net.Listen("tcp", address)
	b.check(err)
	b.Cleanup(func() { l.Close() })
	return l
}

// TestDial: the daemon reaches what listens on the sandbox's loopback, of IPv4 or IPv6, and is told where nothing does.
func TestDial(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	for _, address := range []string{"127.0.0.1:8080", "0.0.0.0:8081", "[::1]:8080"} {
		l := b.listenInside(address)
		conn, err := b.link.Dial(b.context(), uint16(l.Addr().(*net.TCPAddr).Port))
		b.check(err)
		inside, err := l.Accept()
		b.check(err)
		l.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		inside.SetDeadline(time.Now().Add(time.Minute))
		_, err = conn.Write([]byte("hello"))
		b.check(err)
		b.check(conn.CloseWrite())
		if said, err := io.ReadAll(inside); err != nil || string(said) != "hello" {
			t.Errorf("%s: %q, %v", address, said, err)
		}
		inside.Close()
		if said, err := io.ReadAll(conn); err != nil || len(said) != 0 {
			t.Errorf("%s: %q, %v", address, said, err)
		}
		conn.Close()
	}
	if _, err := b.link.Dial(b.context(), 8080); !errors.Is(err, link.ErrPortClosed) {
		t.Error(err)
	}
	ended, end := context.WithCancel(b.context())
	end()
	if _, err := b.link.Dial(ended, 8080); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
