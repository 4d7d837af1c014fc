package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/sdktest"
	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"agbox": main})
}

// TestScripts plays whole sessions of the command line against a daemon without Docker, whose execs
// run on this machine. "daemon down" and "daemon up" restart it; "daemon await ID" returns once
// somebody has subscribed to the sandbox; "daemon changes DIR" has every sandbox have changed DIR, at /workspace, in its own way.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			runtime := filepath.Join(env.WorkDir, "run")
			d := sdktest.New(filepath.Join(env.WorkDir, "logs"))
			d.Clock = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
			env.Defer(d.Close)
			env.Setenv("XDG_RUNTIME_DIR", runtime)
			env.Setenv("TZ", "UTC")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each agbox of a race build ends a second late
			joined := make(chan string, 100)
			d.OnSubscribe(func(id string) { joined <- id })
			env.Values["daemon"], env.Values["joined"] = d, joined
			return d.Serve(filepath.Join(runtime, "agbox", "agboxd.sock"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"daemon": daemon},
	})
}

func daemon(ts *testscript.TestScript, neg bool, args []string) {
	d := ts.Value("daemon").(*sdktest.Daemon)
	socket := filepath.Join(ts.Getenv("XDG_RUNTIME_DIR"), "agbox", "agboxd.sock")
	switch {
	case len(args) == 1 && args[0] == "down":
		d.Shutdown()
		os.Remove(socket)
	case len(args) == 1 && args[0] == "up":
		ts.Check(d.Serve(socket))
	case len(args) == 2 && args[0] == "await":
		for id := range ts.Value("joined").(chan string) {
			if id == args[1] {
				return
			}
		}
	case len(args) == 2 && args[0] == "changes":
		d.SetChanges(changed(ts, ts.MkAbs(args[1])), sdktest.MountChanges{Mount: &agboxv1.ChangedMount{Target: "/home/agbox/.claude", Source: "/none"}})
	default:
		ts.Fatalf("usage: daemon down|up|await ID|changes DIR")
	}
}

// changed is one change of each sort.
func changed(ts *testscript.TestScript, source string) sdktest.MountChanges {
	m := sdktest.MountChanges{Mount: &agboxv1.ChangedMount{Target: "/workspace", Source: source, ListedAt: timestamppb.New(time.Now().Add(time.Hour))},
		Changes: []*agboxv1.Change{
			{Kind: "added", Type: "file", Path: ".git/hooks/pre-commit", SizeBytes: 3, Mode: 0o4755, ModifiedAt: timestamppb.New(time.Unix(0, 0))},
			{Kind: "changed", Type: "file", Path: "both", SizeBytes: 3, Mode: 0o644, ModifiedAt: timestamppb.New(time.Unix(0, 0)), Conflict: true},
			{Kind: "added", Type: "fifo", Path: "fifo", Mode: 0o644, ModifiedAt: timestamppb.New(time.Unix(0, 0)), Problem: "it is a fifo"},
			{Kind: "removed", Type: "file", Path: "gone", SizeBytes: 5, Mode: 0o644, ModifiedAt: timestamppb.New(time.Unix(0, 0))},
			{Kind: "changed", Type: "symlink", OldType: "file", Path: "a\n\uFFFD", PathBytes: []byte("a\n\xff"), SizeBytes: 4, Mode: 0o777, ModifiedAt: timestamppb.New(time.Unix(0, 0)), LinkTarget: "gone"},
		}}
	var b bytes.Buffer
	out := tar.NewWriter(&b)
	for _, name := range []string{".git/hooks/pre-commit", "both"} {
		ts.Check(out.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: 3}))
		_, err := out.Write([]byte("box"))
		ts.Check(err)
	}
	ts.Check(out.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "a\n\xff", Linkname: "gone", Format: tar.FormatPAX}))
	ts.Check(out.Close())
	m.Tar = b.Bytes()
	return m
}
