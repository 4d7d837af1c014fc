package pid1_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/link"
)

// cancelled cancels bg and fails unless nothing of it is left, and the command was ended by signal.
func cancelled(bg *background, grace time.Duration, signal int) {
	bg.Helper()
	bg.check(bg.link.Cancel(context.Background(), bg.ID, grace))
	r := bg.wait()
	if left := bg.processes(); len(left) > 0 {
		bg.Fatalf("left behind: %q", left)
	}
	if !r.Cancelled || r.TimedOut || r.Signal != signal {
		bg.Fatalf("%+v", r)
	}
}

func TestCancelSetsid(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	cancelled(b.begin("setsid sleep 300 & echo ready; sleep 300"), time.Minute, 15)
}

func TestCancelDoubleFork(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	cancelled(b.begin("(setsid sh -c '(setsid sleep 300 </dev/null >/dev/null 2>&1 &)' &); echo ready; sleep 300"), time.Minute, 15)
}

func TestCancelDeafTree(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	cancelled(b.begin("trap '' TERM; setsid sh -c 'while :; do sleep 300; done' & echo ready; while :; do sleep 300; done"), 50*time.Millisecond, 9)
}

func TestCancelStopped(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	cancelled(b.begin("echo ready; kill -STOP $$; sleep 300"), time.Minute, 15)
}

// A name that looks like the rest of /proc/<pid>/stat.
func TestCancelOddName(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.install("/bin/busybox", "bin/busybox) Z 1 ")
	b.start()
	cancelled(b.begin("setsid '/bin/busybox) Z 1 ' sh -c 'echo ready; sleep 300; :' & sleep 300"), time.Minute, 15)
}

// Processes that fork faster than they can be looked for.
func TestCancelForker(t *testing.T) {
	b := newBox(t).start()
	cancelled(b.begin("trap '' TERM; echo ready; while :; do setsid sleep 300 & setsid true; done"), 0, 9)
}

// A command that ends well on TERM has its own exit code, and is cancelled all the same.
func TestCancelCleanup(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	bg := b.begin("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done")
	b.check(b.link.Cancel(context.Background(), bg.ID, time.Minute))
	if r := bg.wait(); r.ExitCode != 3 || !r.Cancelled {
		t.Fatalf("%+v", r)
	}
	if line := bg.line(); line != "bye" {
		t.Fatal(line)
	}
}

func TestCancelSparesOthers(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	other := b.begin("echo ready; sleep 300")
	one := b.begin("echo ready; sleep 200")
	b.check(b.link.Cancel(context.Background(), one.ID, time.Minute))
	one.wait()
	if left := b.processes(); len(left) != 1 {
		t.Fatalf("%q", left)
	}
	cancelled(other, time.Minute, 15)
}

func TestCancelAfterEnd(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	s := b.spec([]string{"sh", "-c", "sleep 300 >/dev/null 2>&1 & exit 5"})
	first := b.wait(s)
	b.check(b.link.Cancel(context.Background(), s.ID, 0))
	if again := b.wait(s); again.Result != first.Result || first.Cancelled {
		t.Fatalf("%+v", again)
	}
	if left := b.processes(); len(left) != 1 {
		t.Fatalf("its background process: %q", left)
	}
}

// Cancel may come before the Exec that it is meant for.
func TestCancelFirst(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	s := b.spec([]string{"sleep", "300"})
	b.check(b.link.Cancel(context.Background(), s.ID, time.Minute))
	if o := b.wait(s); !o.Cancelled || o.Signal != 15 {
		t.Fatalf("%+v", o)
	}
}

func TestTimeoutKillsDeaf(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	bg := b.begin("trap '' TERM; echo ready; while :; do sleep 300; done", func(s *link.ExecSpec) {
		s.Timeout, s.Grace = 2*time.Second, 20*time.Millisecond // which a busy machine needs to say that it is ready
	})
	if r := bg.wait(); r.Signal != 9 || !r.TimedOut || !r.Cancelled {
		t.Fatalf("%+v", r)
	}
}

// What a command does to its own limits takes no mark off.
func TestCancelMarkStays(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"leader":     "ulimit -S -x unlimited; echo ready; exec sleep 600",
		"hard limit": "ulimit -H -x 77; ulimit -S -x 77; echo ready; exec sleep 600",
		"orphan":     "(ulimit -S -x unlimited; setsid sh -c '(setsid sleep 300 </dev/null >/dev/null 2>&1 &)' &); echo ready; sleep 600",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t).start()
			cancelled(b.begin(script), time.Minute, 15)
		})
	}
}

// Where nothing keeps a command from taking its mark off, it is known by its family, and at the end by being nobody else's.
func TestCancelMarkTakenOff(t *testing.T) {
	t.Parallel()
	const orphan = "(ulimit -S -x unlimited; setsid sh -c '(setsid sh -c \": >/tmp/born; exec sleep 300\" </dev/null >/dev/null 2>&1 &)' &)"
	b := newBox(t)
	b.Unsealed = true
	b.start()
	b.expect(b.run("/bin/busybox", "mkfifo", "/tmp/born"), 0, "") // an orphan waits here for whoever waits for it
	left := b.spec(sh(orphan))                                    // of a command that has ended
	b.expect(b.wait(left), 0, "")
	b.expect(b.run("/bin/busybox", "cat", "/tmp/born"), 0, "")
	cancel := func(bg *background, left int) {
		t.Helper()
		b.check(b.link.Cancel(context.Background(), bg.ID, time.Minute))
		if r := bg.wait(); r.Signal != 15 {
			t.Fatalf("%+v", r)
		}
		if got := b.processes(); len(got) != left {
			t.Fatalf("%q, want %d", got, left)
		}
	}
	b.expect(b.run("sleep", "0.02"), 0, "") // for longer than a tick of the clock that processes start by
	other := b.begin("ulimit -S -x unlimited; (echo ready; exec sleep 200); :")
	one := b.begin("ulimit -S -x unlimited; echo ready; (setsid sleep 100) & exec sleep 200")
	cancel(one, 3)
	last := b.begin(orphan + "; /bin/busybox cat /tmp/born; ulimit -S -x unlimited; echo ready; exec sleep 200")
	cancel(other, 3)
	cancel(last, 1)
}

// A bomb is frozen before it is killed. The command itself forks no more: a shell that cannot ends.
func TestCancelForkBomb(t *testing.T) {
	b := newBox(t)
	b.pids(300)
	b.start()
	bg := b.begin("trap '' TERM; bomb() { while :; do bomb & bomb & wait; done; }; bomb 2>/dev/null & echo ready; exec sleep 300")
	other := b.begin("echo ready; exec sleep 300")
	b.check(b.link.Cancel(context.Background(), bg.ID, 50*time.Millisecond))
	if r := bg.wait(); !r.Cancelled {
		t.Fatalf("%+v", r)
	}
	if left := b.processes(); len(left) != 1 {
		t.Fatalf("%q", left)
	}
	cancelled(other, time.Minute, 15)
}

// Without the right to mark processes, cancel goes by session and parents.
func TestCancelWithoutTags(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.Locks = 1000
	b.start()
	cancelled(b.begin("setsid sh -c 'echo ready; sleep 300; :' & sleep 300 & wait"), time.Minute, 15)
}

func TestReapsZombies(t *testing.T) {
	b := newBox(t).start()
	// An orphan whose death the script sees; the reaping that collects the script collects it, too.
	b.expect(b.sh(`(sh -c 'echo $$ > /tmp/pid; exec true' &)
		until test -s /tmp/pid; do sleep 0.01; done; read pid < /tmp/pid
		while test -d /proc/$pid && ! grep -q 'State:.Z' /proc/$pid/status; do sleep 0.01; done; echo dead`), 0, "dead\n")
	pids, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(b.cmd.Process.Pid), "root/proc/[0-9]*"))
	b.check(err)
	if len(pids) != 1 {
		status, _ := os.ReadFile(pids[len(pids)-1] + "/status")
		t.Fatalf("%q\n%s", pids, status)
	}
}
