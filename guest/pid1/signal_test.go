package pid1_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

func TestSignal(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	bg := b.begin("trap 'echo usr1' USR1; echo ready; while :; do sleep 0.01; done")
	for range 2 {
		b.check(b.link.Signal(b.context(), bg.ID, 10))
		if line := bg.line(); line != "usr1" {
			t.Fatal(line)
		}
	}
	b.check(b.link.Signal(b.context(), bg.ID, 0)) // it lives
	if err := b.link.Signal(b.context(), bg.ID, 65); !errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
	b.check(b.link.Signal(b.context(), bg.ID, 9))
	if r := bg.wait(); r.Signal != 9 || r.Cancelled || r.OOM {
		t.Fatalf("%+v", r)
	}
	ended := func() {
		t.Helper()
		if err := b.link.Signal(b.context(), bg.ID, 10); !errors.Is(err, link.ErrExecEnded) {
			t.Fatal(err)
		}
	}
	ended()
	b.link.Ack(bg.ID)
	ended()
	if err := b.link.Signal(b.context(), "no-such", 10); !errors.Is(err, link.ErrExecUnknown) {
		t.Fatal(err)
	}
}

// It is for the leader: its children live on, as does another command.
func TestSignalSparesOthers(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	other := b.begin("echo ready; exec sleep 200")
	bg := b.begin("sleep 300 & echo ready; wait")
	b.check(b.link.Signal(b.context(), bg.ID, 15))
	if r := bg.wait(); r.Signal != 15 || r.Cancelled {
		t.Fatalf("%+v", r)
	}
	if left := b.processes(); len(left) != 2 {
		t.Fatalf("%q", left)
	}
	b.check(b.link.Signal(b.context(), other.ID, 15))
	other.wait()
}

func TestSignalMainCommand(t *testing.T) {
	t.Parallel()
	bg := newBox(t).beginCommand(`exec "$@"`, "trap 'echo hup' HUP; echo ready; while :; do sleep 0.01; done")
	bg.check(bg.link.Signal(bg.context(), protocol.CommandID, 1))
	if line := bg.line(); line != "hup" {
		t.Fatal(line)
	}
}
