package link_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// peer plays init by hand, one frame at a time.
type peer struct {
	*testing.T
	conn    *net.UnixConn
	decoder protocol.Decoder
}

// dial connects by a short name, as the path may be longer than an address holds.
func dial(t *testing.T, path string) *peer {
	t.Helper()
	dir, err := os.Open(filepath.Dir(path))
	check(t, err)
	defer dir.Close()
	name := filepath.Join("/proc/self/fd", itoa(int(dir.Fd())), filepath.Base(path))
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	return &peer{T: t, conn: conn}
}

func greet(t *testing.T, path string, h protocol.Hello) *peer {
	t.Helper()
	p := dial(t, path)
	h.Version = protocol.Version
	p.say(&h)
	return p
}

func (p *peer) say(m protocol.Message) {
	p.Helper()
	frame, err := protocol.Encode(m, 0)
	check(p.T, err)
	_, err = p.conn.Write(frame)
	check(p.T, err)
}

// hear returns the next message; nil at the end of the connection. Descriptors are counted and closed.
func (p *peer) hear() (protocol.Message, int) {
	p.Helper()
	buf, oob := make([]byte, 4096), make([]byte, 256)
	for {
		m, fds, err := p.decoder.Next()
		check(p.T, err)
		if m != nil {
			for _, fd := range fds {
				syscall.Close(fd)
			}
			return m, len(fds)
		}
		n, oobn, _, _, err := p.conn.ReadMsgUnix(buf, oob)
		if n == 0 || err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				p.Fatal(err)
			}
			return nil, 0
		}
		var got []int
		if messages, err := syscall.ParseSocketControlMessage(oob[:oobn]); err == nil && len(messages) > 0 {
			got, _ = syscall.ParseUnixRights(&messages[0])
		}
		p.decoder.Feed(buf[:n], got)
	}
}

// hears expects a message of type M.
func hears[M protocol.Message](p *peer) M {
	p.Helper()
	m, _ := p.hear()
	got, ok := m.(M)
	if !ok {
		p.Fatalf("heard %T %+v, want %T", m, m, got)
	}
	return got
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func trust(context.Context, int) error { return nil }

func listen(t *testing.T, path string, verify func(context.Context, int) error) *link.Link {
	t.Helper()
	l, err := link.Listen(path, link.Owner{Verify: verify, Patience: time.Hour}, slog.New(slog.DiscardHandler))
	check(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// open returns a link with a peer connected that has said h.
func open(t *testing.T, h protocol.Hello) (*link.Link, string, *peer) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l := listen(t, path, trust)
	p := greet(t, path, h)
	check(t, l.Connected(limit(t)))
	return l, path, p
}

func limit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func spec(t *testing.T, id string) link.ExecSpec {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	check(t, err)
	t.Cleanup(func() { null.Close() })
	return link.ExecSpec{ID: id, Argv: []string{"true"}, Files: [3]*os.File{null, null, null}}
}

type answer struct {
	protocol.Result
	error
}

// exec calls Exec in the background.
func exec(l *link.Link, ctx context.Context, s link.ExecSpec) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		r, err := l.Exec(ctx, s)
		done <- answer{r, err}
	}()
	return done
}

func TestListen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	check(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "s")
	stale, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	check(t, err)
	defer unix.Close(stale)
	t.Chdir(dir)
	check(t, unix.Bind(stale, &unix.SockaddrUnix{Name: "s"}))
	l := listen(t, path, trust)
	info, err := os.Stat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o666 {
		t.Fatal(info.Mode(), err)
	}
	greet(t, path, protocol.Hello{})
	check(t, l.Connected(limit(t)))
	check(t, l.Close())
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the socket is still there:", err)
	}
}

func TestListenSparesFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	check(t, os.WriteFile(path, []byte("mine"), 0o600))
	if _, err := link.Listen(path, link.Owner{Verify: trust}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Fatal(err)
	}
}

func TestRefusedPeers(t *testing.T) {
	for name, say := range map[string]func(p *peer){
		"garbage":       func(p *peer) { p.conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")) },
		"no hello":      func(p *peer) { p.say(&protocol.Ack{ID: "x"}) },
		"other version": func(p *peer) { p.say(&protocol.Hello{Version: 99}) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			l := listen(t, path, trust)
			p := dial(t, path)
			say(p)
			if m, _ := p.hear(); m != nil {
				t.Fatalf("heard %+v", m)
			}
			greet(t, path, protocol.Hello{})
			check(t, l.Connected(limit(t)))
		})
	}
}

// More strangers than are looked at at once, all of them silent, do not keep init out.
func TestFlood(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var now, most atomic.Int32
	release := make(chan struct{})
	l := listen(t, path, func(_ context.Context, pid int) error {
		if pid == os.Getpid() {
			return nil
		}
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		<-release
		return errors.New("a stranger")
	})
	stranger := osexec.Command(os.Args[0])
	stranger.Env = []string{floodVariable + "=" + filepath.Dir(path)}
	stranger.Stderr = os.Stderr
	hold, err := stranger.StdinPipe()
	check(t, err)
	said, err := stranger.StdoutPipe()
	check(t, err)
	check(t, stranger.Start())
	_, err = io.ReadFull(said, make([]byte, len("connected\n")))
	check(t, err)
	greet(t, path, protocol.Hello{})
	close(release)
	check(t, l.Connected(limit(t)))
	if most.Load() > 16 {
		t.Fatal(most.Load(), "at once")
	}
	hold.Close()
	check(t, stranger.Wait())
}

func TestCloseEndsBlockedVerification(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	blocked := make(chan struct{})
	l := listen(t, path, func(ctx context.Context, _ int) error {
		close(blocked)
		<-ctx.Done()
		return ctx.Err()
	})
	dial(t, path)
	<-blocked
	check(t, l.Close())
}

func TestNewerConnectionReplaces(t *testing.T) {
	l, path, old := open(t, protocol.Hello{})
	p := greet(t, path, protocol.Hello{})
	if m, _ := old.hear(); m != nil {
		t.Fatalf("%+v", m)
	}
	done := exec(l, limit(t), spec(t, "e"))
	hears[*protocol.Exec](p)
	p.say(&protocol.Result{ID: "e", ExitCode: 1})
	if a := <-done; a.error != nil || a.ExitCode != 1 {
		t.Fatalf("%+v", a)
	}
}

func TestCloseEndsCalls(t *testing.T) {
	l := listen(t, filepath.Join(t.TempDir(), "s"), trust)
	calls := []func() error{
		func() error { return l.Connected(limit(t)) },
		func() error { _, err := l.Exec(limit(t), spec(t, "e")); return err },
		func() error { _, err := l.Boot(limit(t), nil, os.Stdout, os.Stderr, nil); return err },
		func() error { return l.Stop(limit(t), 0) },
		func() error { return l.Signal(limit(t), "e", 1) },
		func() error { return l.Freeze(limit(t)) },
	}
	errs := make(chan error, len(calls))
	for _, call := range calls {
		go func() { errs <- call() }()
	}
	check(t, l.Close())
	for range calls {
		if err := <-errs; !errors.Is(err, link.ErrClosed) {
			t.Error(err)
		}
	}
	if err := l.Cancel(limit(t), "e", 0); !errors.Is(err, link.ErrClosed) {
		t.Error(err)
	}
	l.Ack("e")
	l.Thaw()
}
