package pid1_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/link"
)

// soon is a timeout or grace that is over long before outlives says "alive".
const (
	soon     = 20 * time.Millisecond
	outlives = "trap '' TERM; echo ready; sleep 0.3; echo alive; while :; do sleep 300; done"
)

func brief(s *link.ExecSpec) { s.Timeout, s.Grace = soon, soon }

func (bg *background) alive() {
	bg.Helper()
	if line := bg.line(); line != "alive" {
		bg.Fatal(line)
	}
}

func TestFreezeTimeout(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	b.link.Thaw() // nothing to thaw
	b.check(b.link.Freeze(b.context()))
	bg := b.begin(outlives, brief)
	b.check(b.link.Freeze(b.context()))
	bg.alive()
	b.link.Thaw()
	if r := bg.wait(); !r.TimedOut || r.Signal != 9 {
		t.Fatalf("%+v", r)
	}
	b.expect(b.run("true"), 0, "")
}

func TestFreezeCancel(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	b.check(b.link.Freeze(b.context()))
	bg := b.begin("trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done")
	b.check(b.link.Cancel(context.Background(), bg.ID, soon))
	if line := bg.line(); line != "asked" { // TERM is not held back
		t.Fatal(line)
	}
	b.run("sleep", "0.3")
	if len(b.processes()) == 0 {
		t.Fatal("the grace did not stand still")
	}
	b.link.Thaw()
	if r := bg.wait(); !r.Cancelled || r.Signal != 9 {
		t.Fatalf("%+v", r)
	}
}

func TestFreezeStop(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	b.check(b.link.Freeze(b.context()))
	bg := b.begin(outlives)
	b.check(b.link.Stop(b.context(), soon))
	bg.alive()
	b.link.Thaw()
	if r := bg.wait(); !r.Cancelled || r.Signal != 9 {
		t.Fatalf("%+v", r)
	}
	b.ended()
}

// Init itself stands still as well, as it does in a container that is paused, and runs for a while before Thaw.
func TestFreezePaused(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	b.sh("busybox mkfifo -m 666 /tmp/passed")
	b.check(b.link.Freeze(b.context()))
	bg := b.begin("trap '' TERM; echo ready; sleep 0.3; echo > /tmp/passed; sleep 0.1; echo alive; while :; do sleep 300; done", brief)
	b.check(b.cmd.Process.Signal(syscall.SIGSTOP))
	_, err := os.ReadFile(strings.TrimSuffix(b.address(), ".agbox/run/s") + "tmp/passed")
	b.check(err)
	b.check(b.cmd.Process.Signal(syscall.SIGCONT))
	bg.alive()
	b.link.Thaw()
	if r := bg.wait(); !r.TimedOut || r.Signal != 9 {
		t.Fatalf("%+v", r)
	}
}

// A daemon that comes back and wishes nothing else lets the clocks run.
func TestFreezeReconnectThaws(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	b.check(b.link.Freeze(b.context()))
	bg := b.begin(outlives, brief)
	bg.alive()
	b.relink()
	bg.again()
	if r := bg.wait(); !r.TimedOut {
		t.Fatalf("%+v", r)
	}
}

// One that has called Freeze before init connects leaves them as they are.
func TestFreezeReconnectKeeps(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	b.check(b.link.Freeze(b.context()))
	bg := b.begin(outlives, brief)
	b.away.Lock()
	b.check(b.link.Close())
	b.listen()
	at := b.context()
	over, end := context.WithCancel(at)
	end()
	if err := b.link.Freeze(over); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	b.away.Unlock()
	b.check(b.link.Freeze(at))
	bg.again()
	bg.alive()
	b.link.Thaw()
	if r := bg.wait(); !r.TimedOut {
		t.Fatalf("%+v", r)
	}
}
