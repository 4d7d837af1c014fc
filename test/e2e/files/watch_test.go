package files_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/servertest"
)

type fileWatch struct {
	*raw.FileEvents
	t *testing.T
}

// watchFiles begins a watch and returns once it watches.
func watchFiles(t *testing.T, d *servertest.Daemon, id, path string, recursive bool) fileWatch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	events, err := d.WatchFiles(ctx, &agboxv1.WatchFilesRequest{SandboxId: id, Path: path, Recursive: recursive})
	if err != nil {
		t.Fatal(err)
	}
	w := fileWatch{events, t}
	t.Cleanup(w.Close)
	if first := w.next(); !strings.HasPrefix(first, "watching") {
		t.Fatalf("the first event is %q", first)
	}
	return w
}

func (w fileWatch) next() string {
	w.t.Helper()
	event, err := w.Recv()
	if err != nil {
		w.t.Fatal(err)
	}
	line := event.Kind + " " + event.Path
	if event.OldPath != "" {
		line += " from " + event.OldPath
	}
	if event.Directory {
		line += "/"
	}
	return line
}

// expect reads the events of one step and compares them, in order.
func (w fileWatch) expect(want ...string) {
	w.t.Helper()
	for _, line := range want {
		if got := w.next(); got != line {
			w.t.Fatalf("event %q, want %q", got, line)
		}
	}
}

// until reads events up to the first of a kind.
func (w fileWatch) until(kind string) {
	w.t.Helper()
	for !strings.HasPrefix(w.next(), kind+" ") {
	}
}

func shell(t *testing.T, d *servertest.Daemon, id, script string) {
	t.Helper()
	if end, _, stderr := d.Exec(id, "sh", "-ec", script); end.ExitCode != 0 {
		t.Fatalf("%s: %s", script, stderr)
	}
}

func TestWatchFiles(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	shell(t, d, id, "mkdir -p /tmp/w/old /tmp/out; echo x >/tmp/w/old/f; echo x >/tmp/out/o")
	flat, deep := watchFiles(t, d, id, "/tmp/w", false), watchFiles(t, d, id, "/tmp/w", true)
	single := watchFiles(t, d, id, "/tmp/w/old/f", false)
	both := func(want ...string) {
		t.Helper()
		flat.expect(want...)
		deep.expect(want...)
	}
	shell(t, d, id, "echo a >/tmp/w/a")
	both("created /tmp/w/a", "modified /tmp/w/a")
	shell(t, d, id, "chmod 600 /tmp/w/a; mv /tmp/w/a '/tmp/w/b c'; rm '/tmp/w/b c'")
	both("attributes /tmp/w/a", "renamed /tmp/w/b c from /tmp/w/a", "removed /tmp/w/b c")
	shell(t, d, id, "echo y >>/tmp/w/old/f")
	deep.expect("modified /tmp/w/old/f")
	single.expect("modified /tmp/w/old/f")
	// An editor's way: a new file takes the name.
	shell(t, d, id, "echo z >/tmp/w/old/f~; mv /tmp/w/old/f~ /tmp/w/old/f")
	deep.expect("created /tmp/w/old/f~", "modified /tmp/w/old/f~", "renamed /tmp/w/old/f from /tmp/w/old/f~")
	single.expect("created /tmp/w/old/f")
	// What is made in a directory before it can be watched is told as well, by whoever comes first.
	shell(t, d, id, "mkdir -p /tmp/w/n/e/w")
	both("created /tmp/w/n/")
	deep.expect("created /tmp/w/n/e/", "created /tmp/w/n/e/w/")
	shell(t, d, id, "mv /tmp/w/n/e /tmp/w/m; echo x >/tmp/w/m/w/f")
	flat.expect("created /tmp/w/m/")
	deep.expect("renamed /tmp/w/m from /tmp/w/n/e/", "created /tmp/w/m/w/f", "modified /tmp/w/m/w/f")
	// From outside, and to it.
	shell(t, d, id, "mv /tmp/out /tmp/w/in")
	both("created /tmp/w/in/")
	deep.expect("created /tmp/w/in/o")
	shell(t, d, id, "mv /tmp/w/in /tmp/out")
	both("removed /tmp/w/in/")
	shell(t, d, id, "echo x >/tmp/out/gone; rmdir /tmp/w/n")
	both("removed /tmp/w/n/")
	// The end of a watch: the directory is gone, the client is, the sandbox is.
	shell(t, d, id, "rm -r /tmp/w")
	for _, w := range []fileWatch{flat, deep} {
		for last := ""; last != "removed /tmp/w/"; {
			last = w.next()
		}
		if _, err := w.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the watch ended with %v", err)
		}
	}
	single.Close()
	watchFiles(t, d, id, "/tmp", true).Close()
	nothingInside(t, d, id) // a client that leaves does not hear of the end of what it left
	events, err := d.WatchFiles(t.Context(), &agboxv1.WatchFilesRequest{SandboxId: id, Path: "/tmp/none"})
	if err == nil {
		defer events.Close()
		_, err = events.Recv()
	}
	servertest.Refused(t, err, codes.NotFound, "FILE_NOT_FOUND", "path", `"/tmp/none" does not exist in the sandbox`)
	w := watchFiles(t, d, id, "/tmp", false)
	servertest.StopSandbox(t, d, id)
	_, err = w.Recv()
	notReady(t, err, "the watch has ended; watch again once it runs")
}

// TestWatchFilesOverflow: a client that does not read is told that it missed something, and of what comes then.
// TestWatchAll: what the kernel shows of itself is no part of a tree.
func TestWatchAll(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	all := watchFiles(t, d, id, "/", true)
	shell(t, d, id, "cat /proc/self/stat /sys/kernel/mm/transparent_hugepage/enabled >/dev/null 2>&1; echo x >/tmp/x")
	for line := ""; line != "created /tmp/x"; {
		if line = all.next(); strings.Contains(line, " /proc/") || strings.Contains(line, " /sys/") {
			t.Fatal(line)
		}
	}
}

func TestWatchFilesOverflow(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	w := watchFiles(t, d, id, "/tmp", true)
	// More than the kernel's queue, the pipe and gRPC's windows hold.
	long := strings.Repeat("n", 200)
	shell(t, d, id, fmt.Sprintf("i=0; while [ $i -lt 60000 ]; do : >/tmp/%s$((i%%7)); : >/tmp/%s$((i%%5+7)); i=$((i+1)); done; mkdir /tmp/end", long, long))
	seen := 0
	for w.next() != "overflow /tmp/" {
		seen++
	}
	shell(t, d, id, "mkdir /tmp/end/after")
	for w.next() != "created /tmp/end/after/" {
		seen++
	}
	t.Logf("%d events", seen)
}

// TestWatchFilesOnce: of directories that are made faster than they can be watched, everything is told once.
func TestWatchFilesOnce(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	w := watchFiles(t, d, id, "/tmp", true)
	const trees = 500
	shell(t, d, id, fmt.Sprintf("i=0; while [ $i -lt %d ]; do mkdir -p /tmp/$i/a/b/c; i=$((i+1)); done; mkdir /tmp/end", trees))
	told := map[string]int{}
	for line := w.next(); line != "created /tmp/end/"; line = w.next() {
		told[line]++
	}
	for line, n := range told {
		if n != 1 {
			t.Errorf("%s: %d times", line, n)
		}
	}
	if len(told) != 4*trees {
		t.Errorf("%d directories were told of", len(told))
	}
}

// TestWatchFilesPaused: a frozen sandbox has nothing to tell, and goes on to tell.
func TestWatchFilesPaused(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	w := watchFiles(t, d, id, "/tmp", false)
	if _, err := d.PauseSandbox(t.Context(), &agboxv1.PauseSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_PAUSED)
	_, err := d.RemoveFile(t.Context(), &agboxv1.RemoveFileRequest{SandboxId: id, Path: "/tmp/x"})
	notReady(t, err, "unpause it")
	if _, err := d.UnpauseSandbox(t.Context(), &agboxv1.UnpauseSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_UNPAUSED)
	shell(t, d, id, "mkdir /tmp/x")
	w.expect("created /tmp/x/")
}
