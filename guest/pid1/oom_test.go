package pid1_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/link"
)

// The counter's files as the kernel writes them, and what a command does meanwhile.
func TestOOM(t *testing.T) {
	const (
		v1, v2    = "memory/memory.oom_control", "memory.events"
		textV1    = "oom_kill_disable 0\nunder_oom 0\noom_kill "
		textV2    = "low 0\nhigh 7\nmax 12\noom 3\noom_kill "
		textAfter = "\noom_group_kill 9\n"
	)
	for name, tt := range map[string]struct {
		path, text string
		rises      bool
		end        string
		want       bool
	}{
		"v1":               {v1, textV1, true, "kill -KILL $$", true},
		"v2":               {v2, textV2, true, "kill -KILL $$", true},
		"v1, none":         {v1, textV1, false, "kill -KILL $$", false},
		"v2, none":         {v2, textV2, false, "kill -KILL $$", false},
		"another process":  {v2, textV2, true, "exit 3", false},
		"another signal":   {v2, textV2, true, "kill -TERM $$", false},
		"exit code of one": {v2, textV2, true, "exit 137", false},
		"no counter":       {"memory.stat", textV2, true, "kill -KILL $$", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			path := filepath.Join("sys/fs/cgroup", tt.path)
			b.check(os.MkdirAll(filepath.Join(b.Root, filepath.Dir(path)), 0o755))
			count := func(n int) string { return tt.text + strconv.Itoa(n) + textAfter }
			b.write(path, count(1), 0o644)
			b.write("risen", count(2), 0o644)
			b.start()
			rise := ":; "
			if tt.rises {
				rise = "cat /risen > /" + path + "; "
			}
			root := func(s *link.ExecSpec) { s.User = "root" }
			if o := b.wait(b.spec(sh(rise+tt.end), root)); o.OOM != tt.want {
				t.Fatalf("%+v", o.Result)
			}
			if o := b.sh("kill -KILL $$"); o.OOM { // it has risen before
				t.Fatalf("%+v", o.Result)
			}
			b.expect(b.run("ls", "/proc/self/fd"), 0, "0\n1\n2\n3\n")
		})
	}
}

// A KILL of ours is not the kernel's, though the counter rose.
func TestOOMNotOurs(t *testing.T) {
	for name, end := range map[string]func(bg *background){
		"cancel": func(bg *background) { bg.check(bg.link.Cancel(bg.context(), bg.ID, 0)) },
		"signal": func(bg *background) { bg.check(bg.link.Signal(bg.context(), bg.ID, 9)) },
		"stop":   func(bg *background) { bg.check(bg.link.Stop(bg.context(), 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			b.check(os.MkdirAll(filepath.Join(b.Root, "sys/fs/cgroup"), 0o755))
			b.write("sys/fs/cgroup/memory.events", "oom_kill 0\n", 0o666)
			b.start()
			bg := b.begin("trap '' TERM; echo oom_kill 1 > /sys/fs/cgroup/memory.events; echo ready; while :; do sleep 300; done")
			end(bg)
			if r := bg.wait(); r.OOM || r.Signal != 9 {
				t.Fatalf("%+v", r)
			}
		})
	}
}

// The kernel's own: a command that takes more memory than its cgroup has.
func TestOOMByKernel(t *testing.T) {
	b := newBox(t)
	b.confine(48 << 20)
	b.start()
	const hog = `x=0123456789abcdef; while :; do x="$x$x"; done`
	if o := b.sh(hog); o.Signal != 9 || !o.OOM {
		t.Fatalf("%+v, %s", o.Result, o.stderr)
	}
	if o := b.sh("kill -KILL $$"); o.OOM {
		t.Fatalf("%+v", o.Result)
	}
	timed := b.spec(sh("sleep 300"), func(s *link.ExecSpec) { s.Timeout = 10 * time.Millisecond })
	if o := b.wait(timed); o.OOM || !o.TimedOut {
		t.Fatalf("%+v", o.Result)
	}
}

// Many small processes together take what there is: some of them go, and not PID 1, who is as big as any.
func TestOOMSparesInit(t *testing.T) {
	b := newBox(t)
	b.confine(24 << 20)
	b.start()
	for range 3 {
		o := b.sh(`i=0; while test $i -lt 600; do sh -c 'sleep 1; x=0123456789abcdef; while test ${#x} -lt 40000; do x="$x$x"; done; sleep 1; :' & i=$((i+1)); done; wait`)
		if o.ErrorCode != "" {
			t.Fatalf("%+v", o.Result)
		}
	}
}

// What a command that the kernel took has left behind holds no memory of others.
func TestOOMLeavesNothing(t *testing.T) {
	b := newBox(t)
	b.confine(32 << 20)
	b.start()
	o := b.sh(`(setsid sleep 300 >/dev/null 2>&1 &); x=0123456789abcdef; while :; do x="$x$x"; done`)
	if !o.OOM || o.Cancelled {
		t.Fatalf("%+v", o.Result)
	}
	if left := b.processes(); len(left) > 0 {
		t.Fatalf("%q", left)
	}
}

// confine puts the box into a memory cgroup of its own.
func (b *box) confine(bytes int) {
	b.Helper()
	b.CgroupAt = "sys/fs/cgroup/memory"
	limits := map[string]string{"memory.limit_in_bytes": strconv.Itoa(bytes), "memory.swappiness": "0"}
	if unified() {
		b.CgroupAt = "sys/fs/cgroup"
		limits = map[string]string{"memory.max": strconv.Itoa(bytes), "memory.swap.max": "0"}
	}
	b.check(os.MkdirAll(filepath.Join(b.Root, b.CgroupAt), 0o755))
	b.cgroup("memory", limits)
}

// pids puts the box into a cgroup of so many processes.
func (b *box) pids(most int) {
	b.Helper()
	b.cgroup("pids", map[string]string{"pids.max": strconv.Itoa(most)})
}

func unified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

func (b *box) cgroup(controller string, limits map[string]string) {
	b.Helper()
	parent := "/sys/fs/cgroup"
	if !unified() {
		parent = filepath.Join(parent, controller)
	}
	dir, err := os.MkdirTemp(parent, "agbox-init-test-")
	b.check(err)
	b.Cleanup(func() { b.check(os.Remove(dir)) })
	for name, value := range limits {
		err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0)
		if name == "memory.swap.max" && errors.Is(err, os.ErrNotExist) { // a kernel without swap
			continue
		}
		b.check(err)
	}
	b.Cgroups = append(b.Cgroups, dir)
}
