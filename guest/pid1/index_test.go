package pid1_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// indexed gives the command a file for its index.
func indexed(b *box) func(*link.ExecSpec) {
	return func(s *link.ExecSpec) {
		f, err := os.Create(filepath.Join(b.logs, s.ID+".index"))
		b.check(err)
		b.Cleanup(func() { f.Close() })
		s.Index = f
	}
}

func (b *box) runs(id string) (all []protocol.Run) {
	b.Helper()
	var d protocol.IndexDecoder
	d.Feed([]byte(b.file(id, "index")))
	for r, more := d.Next(); more; r, more = d.Next() {
		all = append(all, r)
	}
	return all
}

// merged is the output in the order that the index tells, each run with its stream's number before it.
func merged(runs []protocol.Run, stdout, stderr string) (text string, rest int) {
	var all strings.Builder
	for _, r := range runs {
		from, name := &stdout, "1:"
		if r.Stderr {
			from, name = &stderr, "2:"
		}
		if int(r.Length) > len(*from) {
			return "a run that is longer than what there is", 0
		}
		all.WriteString(name + (*from)[:r.Length])
		*from = (*from)[r.Length:]
	}
	return all.String(), len(stdout) + len(stderr)
}

// grown waits until a file has its size.
func (b *box) grown(id, kind string, size int64) {
	name := filepath.Join(b.logs, id+"."+kind)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if info, err := os.Stat(name); err == nil && info.Size() >= size {
			return
		}
	}
	b.Errorf("%s does not get to %d bytes", name, size)
}

// turns is a script that writes by turns, and each time only when what was before is in its file: of what is in both pipes
// at once nobody knows which was first.
func (b *box) turns(id string, texts ...string) (script string, done func()) {
	b.Helper()
	gate := filepath.Join(b.Root, "gate-"+id)
	b.check(syscall.Mkfifo(gate, 0o666))
	b.check(os.Chmod(gate, 0o666))
	var lines strings.Builder
	for i, text := range texts {
		fmt.Fprintf(&lines, "printf %s >&%d; read go <&3\n", text, i%2+1)
	}
	pipe, err := os.OpenFile(gate, os.O_RDWR, 0)
	b.check(err)
	b.Cleanup(func() { pipe.Close() })
	grown := make(chan struct{})
	b.Cleanup(func() { <-grown })
	return "exec 3</gate-" + id + "\n" + lines.String(), func() {
		go func() {
			defer close(grown)
			want := [2]int64{}
			for i, text := range texts {
				want[i%2] += int64(len(text))
				b.grown(id, []string{"stdout", "stderr"}[i%2], want[i%2])
				io.WriteString(pipe, "go\n")
			}
		}()
	}
}

func TestIndex(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	begun := time.Now().Truncate(time.Microsecond)
	s := b.spec([]string{"sh", "-c", ""}, indexed(b))
	script, done := b.turns(s.ID, "aa", "b", "cccc", "dd", "e", "f")
	s.Argv[2] = script
	done()
	o := b.wait(s)
	runs := b.runs(s.ID)
	if text, rest := merged(runs, o.stdout, o.stderr); o.ExitCode != 0 || text != "1:aa2:b1:cccc2:dd1:e2:f" || rest != 0 {
		t.Fatalf("%+v: %q, %d bytes more", o.Result, text, rest)
	}
	last := begun
	for _, r := range runs {
		if r.At.Before(last) || r.At.After(o.Ended) {
			t.Errorf("%v comes at %v, after %v, before %v", r, r.At, last, o.Ended)
		}
		last = r.At
	}
	for name, spec := range map[string]link.ExecSpec{
		"silent":   b.spec([]string{"true"}, indexed(b)),
		"failed":   b.spec([]string{"/no/such"}, indexed(b)),
		"terminal": b.spec([]string{"sh", "-c", "echo a; echo b >&2"}, indexed(b), func(s *link.ExecSpec) { s.Terminal = &protocol.Size{} }),
		"without":  b.spec([]string{"sh", "-c", "echo a; echo b >&2"}, indexed(b), func(s *link.ExecSpec) { s.Index = nil }),
	} {
		b.wait(spec)
		if got := b.file(spec.ID, "index"); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	input, keeper, err := os.Pipe()
	b.check(err)
	defer input.Close()
	keeper.WriteString("typed")
	o = b.wait(b.spec([]string{"head", "-c", "5"}, indexed(b), func(s *link.ExecSpec) { s.Stdin = [2]*os.File{input, keeper} }))
	keeper.Close()
	if text, rest := merged(b.runs(o.ID), o.stdout, o.stderr); text != "1:typed" || rest != 0 {
		t.Errorf("with an input: %q, %d", text, rest)
	}
}

// A command that writes a lot has a small index that tells of all of it, whatever the pace.
func TestIndexSize(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	for name, tt := range map[string]struct {
		script   string
		size     int
		fraction int // of the output
	}{
		"blocks": {"head -c 50000000 /dev/zero", 50000000, 5000},
		"lines":  {"i=0; while test $i -lt 100000; do i=$((i+1)); echo a line of some length; done", 2200000, 100},
		"turns":  {"i=0; while test $i -lt 20000; do i=$((i+1)); echo a line of some length; echo and one more >&2; done", 700000, 4},
	} {
		if name == "blocks" {
			b.write("dev/zero", "", 0o644)
			b.check(os.Truncate(filepath.Join(b.Root, "dev/zero"), 50000000))
		}
		begun := time.Now()
		o := b.wait(b.spec([]string{"sh", "-c", tt.script}, indexed(b)))
		took := time.Since(begun)
		runs, size := b.runs(o.ID), len(b.file(o.ID, "index"))
		t.Logf("%s: %d bytes of index in %d runs, %v", name, size, len(runs), took)
		if _, rest := merged(runs, o.stdout, o.stderr); rest != 0 || len(o.stdout)+len(o.stderr) != tt.size {
			t.Errorf("%s: %d bytes in the files, %d of them not in the index", name, len(o.stdout)+len(o.stderr), rest)
		}
		// Where the stream stays the same there is one run in 10 ms.
		if most := 100 + tt.size/tt.fraction + int(took/(10*time.Millisecond))*9; size > most {
			t.Errorf("%s: the index has %d bytes, more than %d", name, size, most)
		}
	}
}

// Where files stop growing the index does.
func TestIndexLimit(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	o := b.wait(b.spec([]string{"sh", "-c", "yes 1 | head -c 100000; yes 2 | head -c 50000 >&2; echo"}, indexed(b),
		func(s *link.ExecSpec) { s.MaxOutput = 60000 }))
	if text, rest := merged(b.runs(o.ID), o.stdout, o.stderr); rest != 0 || len(o.stdout) != 60000 || len(o.stderr) != 50000 {
		t.Errorf("%d and %d bytes, %d not told of, %d told of", len(o.stdout), len(o.stderr), rest, len(text))
	}
}

// A disk that is full before the command begins, and again later, costs the order of what comes meanwhile, and nothing of
// what comes when there is room again. What waits is bounded.
func TestIndexOnFullDisk(t *testing.T) {
	b := newBox(t)
	disk := t.TempDir()
	b.check(syscall.Mount("disk", disk, "tmpfs", 0, "size=16k"))
	t.Cleanup(func() { syscall.Unmount(disk, syscall.MNT_DETACH) })
	b.start()
	full := func(s *link.ExecSpec) {
		f, err := os.Create(filepath.Join(disk, "index"))
		b.check(err)
		b.Cleanup(func() { f.Close() })
		s.Index = f
	}
	filler := filepath.Join(disk, "filler")
	b.check(os.WriteFile(filler, make([]byte, 12<<10), 0o600))
	if err := os.WriteFile(filepath.Join(disk, "more"), make([]byte, 12<<10), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	for _, gate := range []string{"gate1", "gate2", "gate3"} {
		b.check(syscall.Mkfifo(filepath.Join(b.Root, gate), 0o666))
		b.check(os.Chmod(filepath.Join(b.Root, gate), 0o666))
	}
	open := func(gate string) { // waits for the command to get there
		pipe, err := os.OpenFile(filepath.Join(b.Root, gate), os.O_WRONLY, 0)
		b.check(err)
		b.check(pipe.Close())
	}
	s := b.spec([]string{"sh", "-c", `i=0; while test $i -lt 5000; do i=$((i+1)); echo $i; echo $i >&2; done
		cat /gate1; cat /gate2; echo later >&2; cat /gate3; echo last`}, full)
	ended := make(chan protocol.Result, 1)
	go func() {
		r, err := b.link.Exec(b.context(), s)
		if err != nil {
			t.Error(err)
		}
		ended <- r
	}()
	open("gate1")
	if info, err := s.Index.Stat(); err != nil || info.Size() != 0 {
		t.Fatalf("the full disk has %v, %v", info, err)
	}
	b.check(os.Remove(filler))
	b.check(os.Remove(filepath.Join(disk, "more")))
	const counted = 9*2 + 90*3 + 900*4 + 4001*5 // bytes of each stream
	b.grown(s.ID, "stdout", counted)
	b.grown(s.ID, "stderr", counted)
	open("gate2")
	b.grown(s.ID, "stderr", counted+int64(len("later\n")))
	open("gate3")
	if r := <-ended; r.ExitCode != 0 || r.OutputLost != 0 {
		t.Fatalf("%+v", r)
	}
	index, err := os.ReadFile(filepath.Join(disk, "index"))
	b.check(err)
	b.check(os.WriteFile(filepath.Join(b.logs, s.ID+".index"), index, 0o600))
	runs := b.runs(s.ID)
	text, rest := merged(runs, b.file(s.ID, "stdout"), b.file(s.ID, "stderr"))
	before, last := strings.CutSuffix(text, "later\n1:last\n") // which go on with what stderr had, or begin a run
	if rest != 0 || !last || strings.LastIndex(before, "2:") < strings.LastIndex(before, "1:") {
		t.Errorf("%d runs, %d bytes not told of, the end is %q", len(runs), rest, text[max(0, len(text)-50):])
	}
	if !strings.HasPrefix(text, "1:") || len(runs) > 400 {
		t.Errorf("%d runs, the beginning is %q", len(runs), text[:min(20, len(text))])
	}
}

// What is written last before the sandbox ends does not wait.
func TestIndexAtLeave(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	gate := filepath.Join(b.Root, "gate")
	b.check(syscall.Mkfifo(gate, 0o666))
	b.check(os.Chmod(gate, 0o666))
	b.start()
	held := make(chan *os.File, 1)
	s := b.spec([]string{"sh", "-c", "(trap 'echo bye; exit' TERM; echo up; while :; do sleep 100; done) & cat /gate"}, indexed(b),
		func(s *link.ExecSpec) {
			s.OnStarted = func(pid int) { // the pipe's end is not met before that of init
				f, err := os.OpenFile(fmt.Sprintf("/proc/%d/root/proc/%d/fd/1", b.cmd.Process.Pid, pid), os.O_WRONLY, 0)
				if err != nil {
					t.Error(err)
				}
				held <- f
			}
		})
	ended := make(chan error, 1)
	go func() {
		_, err := b.link.Exec(b.context(), s)
		ended <- err
	}()
	defer (<-held).Close()
	b.grown(s.ID, "stdout", int64(len("up\n")))
	pipe, err := os.OpenFile(gate, os.O_WRONLY, 0)
	b.check(err)
	b.check(pipe.Close())
	b.check(<-ended)
	b.check(b.link.Stop(b.context(), time.Minute))
	b.ended()
	if text, rest := merged(b.runs(s.ID), b.file(s.ID, "stdout"), b.file(s.ID, "stderr")); !strings.Contains(text, "1:bye\n") || rest != 0 {
		t.Fatalf("%q, %d", text, rest)
	}
}

// What processes that outlive their command write is told of as well.
func TestIndexAfterEnd(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	b.sh("busybox mkfifo -m 666 /tmp/gate")
	s := b.spec([]string{"sh", "-c", "(cat /tmp/gate >/dev/null; echo later >&2) & echo now"}, indexed(b))
	b.expect(b.wait(s), 0, "now\n")
	if text, rest := merged(b.runs(s.ID), "now\n", ""); text != "1:now\n" || rest != 0 {
		t.Fatalf("%q, %d", text, rest)
	}
	b.sh("echo go > /tmp/gate; while busybox pidof cat >/dev/null; do sleep 0.01; done")
	b.check(b.link.Stop(b.context(), time.Minute))
	b.ended() // all is written
	if text, rest := merged(b.runs(s.ID), "now\n", b.file(s.ID, "stderr")); text != "1:now\n2:later\n" || rest != 0 {
		t.Fatalf("%q, %d", text, rest)
	}
}
