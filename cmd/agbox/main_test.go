package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/sdk/sdktest"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"agbox": main})
}

// TestScripts plays whole sessions of the command line against a daemon without Docker, whose execs
// run on this machine. "daemon down" and "daemon up" restart it; "daemon await ID" returns once
// somebody has subscribed to the sandbox.
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
	default:
		ts.Fatalf("usage: daemon down|up|await ID")
	}
}
