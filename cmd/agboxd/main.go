// Command agboxd gives AI agents, test runs and untrusted scripts sandboxes of their own on Docker. It serves
// agbox.v1 on a Unix socket; nothing is set by flags, see docs/config.md.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// version is set by the build.
var version = "dev"

// gcPercent trades memory for time: the daemon's heap is some 10 MB, and collecting it for every 10 MB more costs a
// twentieth of an exec's latency.
const gcPercent = 400

func main() {
	debug.SetGCPercent(gcPercent)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	switch {
	case len(args) == 1 && (args[0] == "--version" || args[0] == "version"):
		fmt.Fprintln(stdout, "agboxd", version)
		return 0
	case len(args) > 0:
		fmt.Fprintln(stderr, "agboxd: takes no arguments but --version; settings are in config.toml, see docs/config.md")
		return 2
	}
	if err := serve(ctx, stderr); err != nil {
		fmt.Fprintln(stderr, "agboxd:", err)
		return 1
	}
	return 0
}
