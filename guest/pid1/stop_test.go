package pid1_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/protocol"
)

func (b *box) term() {
	b.Helper()
	b.check(b.cmd.Process.Signal(syscall.SIGTERM))
}

func TestStopIdle(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			b := newBox(t).start("--stop-grace=10m")
			begun := time.Now()
			b.check(b.cmd.Process.Signal(sig))
			if code := b.ended(); code != 0 {
				t.Fatal(code)
			}
			t.Log("took", time.Since(begun))
		})
	}
}

func TestStopByDaemon(t *testing.T) {
	t.Parallel()
	b := newBox(t).start("--stop-grace=10m")
	bg := b.begin("echo ready; sleep 300")
	b.check(b.link.Stop(context.Background(), time.Minute))
	if r := bg.wait(); r.Signal != 15 || !r.Cancelled {
		t.Fatalf("%+v", r)
	}
	if code := b.ended(); code != 0 {
		t.Fatal(code)
	}
}

// What cleans up on TERM has the time for it, and its last words are in the log.
func TestStopWaitsForCleanup(t *testing.T) {
	t.Parallel()
	b := newBox(t).start("--stop-grace=10m")
	bg := b.begin("trap 'sleep 0.2; echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done")
	b.term()
	if r := bg.wait(); r.ExitCode != 7 || !r.Cancelled {
		t.Fatalf("%+v", r)
	}
	if line := bg.line(); line != "bye" {
		t.Fatal(line)
	}
	if r, ok := protocol.ParseRecord([]byte(b.file(bg.ID, "record"))); !ok || r.ExitCode != 7 {
		t.Fatalf("record: %+v, %v", r, ok)
	}
	b.ended()
}

func TestStopKillsDeaf(t *testing.T) {
	t.Parallel()
	b := newBox(t).start("--stop-grace=50ms")
	bg := b.begin("trap '' TERM; setsid sleep 300 & echo ready; while :; do sleep 300; done")
	b.term()
	if r := bg.wait(); r.Signal != 9 || !r.Cancelled {
		t.Fatalf("%+v", r)
	}
	if code := b.ended(); code != 0 {
		t.Fatal(code)
	}
}

// Background processes of commands that have long ended go as well.
func TestStopEndsOrphans(t *testing.T) {
	t.Parallel()
	b := newBox(t).start("--stop-grace=10m")
	b.sh("setsid sleep 300 >/dev/null 2>&1 &")
	b.term()
	b.ended()
}

func TestStopRefusesNewExecs(t *testing.T) {
	t.Parallel()
	b := newBox(t).start("--stop-grace=10m")
	b.begin("trap 'echo stopping' TERM; echo ready; while :; do read x < /tmp/end && exit; sleep 0.01; done").stopped()
	o := b.run("true")
	if o.ErrorCode != protocol.CodeStopping || o.ExitCode != 126 {
		t.Fatalf("%+v", o)
	}
	b.check(b.link.Stop(context.Background(), 0)) // a shorter grace
	b.ended()
}

// stopped sends TERM to init and waits until the command has seen it.
func (bg *background) stopped() {
	bg.Helper()
	bg.term()
	if line := bg.line(); line != "stopping" {
		bg.Fatal(line)
	}
}

func TestOtherSignalsDoNothing(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGPIPE, syscall.SIGABRT, syscall.SIGALRM} {
		b.check(b.cmd.Process.Signal(sig))
	}
	b.expect(b.run("true"), 0, "")
	// Nor are they blocked or ignored in a command.
	if o := b.sh("kill -HUP $$"); o.Signal != 1 {
		t.Fatalf("%+v", o)
	}
}
