package pid1_test

import (
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/link"
)

func TestOutputByName(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	for _, user := range []string{"root", "agbox", "4242"} {
		o := b.wait(b.spec([]string{"sh", "-c", "echo a; echo b > /dev/stderr; echo c >&2; echo d > /dev/stdout"},
			func(s *link.ExecSpec) { s.User = user }))
		b.expect(o, 0, "a\nd\n")
		if o.stderr != "b\nc\n" {
			t.Fatalf("%s: stderr %q", user, o.stderr)
		}
	}
}

// All that was written before the end is in the files when the result arrives, while a background
// process goes on writing to the same files.
func TestOutputComplete(t *testing.T) {
	t.Parallel()
	const size = 50 << 20
	b := newBox(t)
	source := make([]byte, 1<<20)
	for i := range source {
		source[i] = byte(i * i >> 7)
	}
	b.write("source", string(source), 0o644)
	b.start()
	before := b.memory()
	s := b.spec([]string{"sh", "-c", `(cat /tmp/gate >/dev/null; echo later) &
		i=0; while test $i -lt 50; do cat /source; i=$((i+1)); done; echo end >&2`})
	b.sh("exec busybox mkfifo -m 666 /tmp/gate")
	begun := time.Now()
	r, err := b.link.Exec(b.context(), s)
	b.check(err)
	t.Logf("%.0f MB/s; before: %s; after: %s", size/1e6/time.Since(begun).Seconds(), before, b.memory())
	if r.ExitCode != 0 || r.OutputLost != 0 || b.file(s.ID, "stderr") != "end\n" {
		t.Fatalf("%+v, stderr %q", r, b.file(s.ID, "stderr"))
	}
	want := sha256.New()
	for range 50 {
		want.Write(source)
	}
	got := sha256.New()
	f, err := os.Open(filepath.Join(b.logs, s.ID+".stdout"))
	b.check(err)
	defer f.Close()
	if n, err := io.Copy(got, f); n != size || err != nil || string(got.Sum(nil)) != string(want.Sum(nil)) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	b.sh("echo go > /tmp/gate; while busybox pidof cat >/dev/null; do sleep 0.01; done")
	b.check(b.link.Stop(b.context(), time.Minute))
	b.ended() // all pipes are empty now
	if rest, _ := io.ReadAll(f); string(rest) != "later\n" {
		t.Fatalf("%q", rest)
	}
}

// A background process that never stops writing does not hold up the end of its command.
func TestOutputEndless(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	s := b.spec([]string{"sh", "-c", "yes & echo $! > /tmp/pid; echo last >&2"})
	s.Files[0], _ = os.OpenFile("/dev/null", os.O_WRONLY, 0)
	defer s.Files[0].Close()
	if o := b.wait(s); o.ExitCode != 0 || o.stderr != "last\n" {
		t.Fatalf("%+v", o)
	}
	b.expect(b.sh("kill -KILL $(cat /tmp/pid) && echo killed"), 0, "killed\n")
}

// Where the log cannot be written the command goes on, and the result tells how much is missing.
func TestOutputLost(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.Fsize = 4096
	b.start()
	o := b.sh("head -c 100000 /bin/busybox; echo end >&2")
	if o.ExitCode != 0 || len(o.stdout) != 4096 || o.stderr != "end\n" || o.OutputLost != 100000-4096 {
		t.Fatalf("%+v, %d bytes", o.Result, len(o.stdout))
	}
}

// The file stops growing at the limit, each stream by itself, and the command goes on.
func TestOutputLimit(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	for _, tt := range []struct{ limit, size, kept, dropped uint64 }{
		{0, 300000, 300000, 0},
		{1, 300000, 1, 299999},
		{70000, 300000, 70000, 230000}, // in the middle of a read
		{300000, 300000, 300000, 0},
		{1 << 62, 300000, 300000, 0},
	} {
		o := b.wait(b.spec([]string{"sh", "-c", "head -c " + strconv.FormatUint(tt.size, 10) + " /bin/busybox; printf e >&2"},
			func(s *link.ExecSpec) { s.MaxOutput = tt.limit }))
		if o.ExitCode != 0 || o.StdoutBytes != tt.kept || uint64(len(o.stdout)) != tt.kept || o.stderr != "e" ||
			o.StderrBytes != 1 || o.OutputDropped != tt.dropped || o.OutputLost != 0 || o.OutputMissing() != tt.dropped {
			t.Errorf("limit %d: %+v, %d bytes", tt.limit, o.Result, len(o.stdout))
		}
		if want, _ := os.ReadFile("/bin/busybox"); o.stdout != string(want[:tt.kept]) {
			t.Errorf("limit %d: not the beginning of the output", tt.limit)
		}
	}
}

// What fits under the limit and not on the disk is lost, what does not fit under the limit is dropped.
func TestOutputLimitOnFullDisk(t *testing.T) {
	b := newBox(t)
	b.Fsize = 4096
	b.start()
	o := b.wait(b.spec([]string{"head", "-c", "300000", "/bin/busybox"}, func(s *link.ExecSpec) { s.MaxOutput = 10000 }))
	if o.StdoutBytes != 4096 || o.OutputLost != 10000-4096 || o.OutputDropped != 300000-10000 || o.OutputMissing() != 300000-4096 {
		t.Fatalf("%+v", o.Result)
	}
}

// The limit holds for processes that outlive their command.
func TestOutputLimitAfterEnd(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	b.sh("busybox mkfifo -m 666 /tmp/gate")
	s := b.spec([]string{"sh", "-c", "(cat /tmp/gate >/dev/null; echo later) & printf 1234"},
		func(s *link.ExecSpec) { s.MaxOutput = 6 })
	b.expect(b.wait(s), 0, "1234")
	b.sh("echo go > /tmp/gate; while busybox pidof cat >/dev/null; do sleep 0.01; done")
	b.check(b.link.Stop(b.context(), time.Minute))
	b.ended() // all pipes are empty now
	if got := b.file(s.ID, "stdout"); got != "1234la" {
		t.Fatalf("%q", got)
	}
}

func BenchmarkOutput(bench *testing.B) {
	const size = 200 << 20
	b := newBox(bench)
	b.write("zeros", "", 0o644)
	b.check(os.Truncate(filepath.Join(b.Root, "zeros"), size))
	b.start()
	bench.SetBytes(size)
	for bench.Loop() {
		s := b.spec([]string{"busybox", "dd", "if=/zeros", "bs=64k"})
		if r, err := b.link.Exec(bench.Context(), s); err != nil || r.ExitCode != 0 {
			bench.Fatalf("%+v, %v", r, err)
		}
	}
	bench.Log(b.memory())
}
