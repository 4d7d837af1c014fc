package pid1_test

import (
	"context"
	"io"
	"net"
	"os"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// relink is what a restart of the daemon looks like to init.
func (b *box) relink() {
	b.Helper()
	b.check(b.link.Close())
	b.listen()
	b.check(b.link.Connected(b.context()))
}

// again attaches to the exec after a relink and expects that the earlier call has failed.
func (bg *background) again() {
	bg.Helper()
	<-bg.done
	if bg.err != link.ErrClosed {
		bg.Fatal(bg.err)
	}
	bg.attach()
}

func TestReconnectWhileRunning(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	bg := b.begin("echo ready; sleep 300 & wait")
	b.relink()
	bg.again()
	b.relink()
	bg.again()
	cancelled(bg, time.Minute, 15)
}

// A result that nobody was there to receive is told to the next daemon, again until it says Ack.
func TestReconnectWhileEnded(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	bg := b.begin("busybox mkfifo -m 666 /tmp/gate; echo ready; cat /tmp/gate; echo ran >> /tmp/ran; exit 9")
	gate := b.spec([]string{"sh", "-c", "echo > /tmp/gate"})
	b.wait(gate)
	first := bg.wait() // not acknowledged
	for range 2 {
		b.relink()
		bg.attach()
		if again := bg.wait(); again != first || again.ExitCode != 9 {
			t.Fatalf("%+v, then %+v", first, again)
		}
	}
	b.link.Ack(bg.ID)
	b.expect(b.sh("cat /tmp/ran"), 0, "ran\n")
}

// A connection that breaks while the daemon waits: the result of what ended meanwhile comes by itself.
func TestReconnectUnderneath(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	b.expect(b.sh("busybox mkfifo -m 666 /tmp/gate"), 0, "")
	bg := b.begin("echo ready; read x < /tmp/gate; echo over; exit 5")
	b.away.Lock()
	b.impostor.Store(true)
	conn, err := net.Dial("unix", b.address())
	b.check(err)
	hello, err := protocol.Encode(&protocol.Hello{
		Version: protocol.Version, Execs: []protocol.KnownExec{{ID: bg.ID, PID: 1}},
	}, 0)
	b.check(err)
	conn.Write(hello)
	other := &background{box: b, ExecSpec: b.spec([]string{"true"})}
	other.attach() // reaches the impostor, so init is cut off
	if _, err := io.ReadFull(conn, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	b.check(os.WriteFile(strings.TrimSuffix(b.address(), ".agbox/run/s")+"tmp/gate", []byte("go\n"), 0))
	if line := bg.line(); line != "over" {
		t.Fatal(line)
	}
	b.away.Unlock()
	conn.Close()
	if r := bg.wait(); r.ExitCode != 5 {
		t.Fatalf("%+v", r)
	}
	if r := other.wait(); r.ExitCode != 0 { // said again, now to init
		t.Fatalf("%+v", r)
	}
}

// Whoever takes init's place again and again, for moments of any length, loses no command and no result: neither of one that
// runs nor of one that cannot be started.
func TestEveryExecEndsThroughCuts(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	b.impostor.Store(true)
	hello, err := protocol.Encode(&protocol.Hello{Version: protocol.Version}, 0)
	b.check(err)
	ctx, stop := context.WithCancel(t.Context())
	var cuts sync.WaitGroup
	cuts.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			b.link.Connected(ctx)
			conn, err := net.Dial("unix", b.address())
			if err != nil {
				continue
			}
			conn.Write(hello)
			for range n % 50 {
				goruntime.Gosched()
			}
			conn.SetReadDeadline(time.Now().Add(time.Duration(n%7) * time.Millisecond))
			conn.Read(make([]byte, 1+n%64))
			conn.Close()
		}
	})
	for i := range 20 { // 2,000 were tried
		argv, code := []string{"no-such-command"}, 127
		if i%2 == 1 {
			argv, code = []string{"sh", "-c", "exit 3"}, 3
		}
		if o := b.run(argv...); o.ExitCode != code {
			t.Errorf("%q: %+v", argv, o.Result)
		}
	}
	stop()
	cuts.Wait()
}

// With no daemon there at all, the record and the output are on disk.
func TestEndWithoutDaemon(t *testing.T) {
	t.Parallel()
	b := newBox(t).start("--stop-grace=10m")
	bg := b.begin("trap 'echo bye; exit 6' TERM; echo ready; while :; do sleep 0.01; done")
	b.check(b.link.Close())
	b.term()
	if code := b.ended(); code != 0 {
		t.Fatal(code)
	}
	if line := bg.line(); line != "bye" {
		t.Fatal(line)
	}
	if r, ok := protocol.ParseRecord([]byte(b.file(bg.ID, "record"))); !ok || r.ExitCode != 6 || !r.Cancelled {
		t.Fatalf("%+v, %v", r, ok)
	}
}

// Strangers in the sandbox that connect as fast as they can change nothing.
func TestStrangers(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	ctx, stop := context.WithCancel(t.Context())
	var strangers sync.WaitGroup
	for range 8 {
		strangers.Go(func() {
			for ctx.Err() == nil {
				if conn, err := net.Dial("unix", b.address()); err == nil {
					conn.Write([]byte("hello"))
					conn.Close()
				}
			}
		})
	}
	for range 3 {
		b.expect(b.sh("echo works"), 0, "works\n")
		b.relink()
	}
	stop()
	strangers.Wait()
}
