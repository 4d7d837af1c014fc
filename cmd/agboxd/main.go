// Command agboxd gives AI agents, test runs and untrusted scripts sandboxes of their own on Docker. It serves
// agbox.v1 on a Unix socket; settings are in a file, see docs/config.md.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
)

// version is set by the build.
var version = "dev"

// gcPercent trades memory for time: the daemon's heap is some 10 MB, and collecting it for every 10 MB more costs a
// twentieth of an exec's latency. What clients have it hold beyond that is collected sooner: with memoryLimit bytes for the Go
// runtime, and the pages of the program and the database beside them, the daemon stays below 120 MB (see server's maxCarriedInAll).
const (
	gcPercent   = 400
	memoryLimit = 80 << 20
)

func main() {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

const usage = `agboxd runs the daemon. Settings are in config.toml, see docs/config.md.

  agboxd               run until SIGTERM or SIGINT
  agboxd --adopt       first take sandboxes in that Docker has and the database does not know
  agboxd --forget[=N]  first remove those N sandboxes and their logs; without N it asks
  agboxd backup FILE   write the database of the agboxd that runs to FILE, see docs/backup.md
  agboxd --version     print the version
  agboxd --help        print this
`

// arguments is what somebody has asked for beside running.
type arguments struct {
	adopt, forget bool
	// count is how many sandboxes forget removes, negative when that has to be asked.
	count int
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 1 && args[0] != "backup" {
		return misused(stderr, args[1])
	}
	var start arguments
	var err error
	switch {
	case len(args) == 0:
	case args[0] == "--version" || args[0] == "version":
		fmt.Fprintln(stdout, "agboxd", version)
		return 0
	case args[0] == "help" || wantsHelp(args[len(args)-1]):
		fmt.Fprint(stdout, usage)
		return 0
	case args[0] == "backup" && len(args) == 2 && !strings.HasPrefix(args[1], "-"):
		if err := backup(ctx, args[1]); err != nil {
			fmt.Fprintln(stderr, "agboxd:", err)
			return 1
		}
		fmt.Fprintf(stdout, "%s holds the database; docs/backup.md says how to restore it\n", args[1])
		return 0
	case args[0] == "backup":
		fmt.Fprintln(stderr, "agboxd: backup takes one argument, the file to write, such as agboxd backup agbox.db")
		return 2
	case args[0] == "--adopt":
		start.adopt = true
	case args[0] == "--forget":
		start.forget, start.count = true, -1
	case strings.HasPrefix(args[0], "--forget="):
		start.forget = true
		if start.count, err = strconv.Atoi(strings.TrimPrefix(args[0], "--forget=")); err != nil || start.count < 0 {
			fmt.Fprintln(stderr, "agboxd: --forget takes the number of sandboxes to remove, such as --forget=3")
			return 2
		}
	default:
		return misused(stderr, args[0])
	}
	if err := serve(ctx, start, stdin, stderr); err != nil {
		fmt.Fprintln(stderr, "agboxd:", err)
		return 1
	}
	return 0
}

func wantsHelp(argument string) bool {
	return argument == "--help" || argument == "-h"
}

func misused(stderr io.Writer, argument string) int {
	fmt.Fprintf(stderr, "agboxd: takes no argument %q; settings are in config.toml, see docs/config.md\n%s", argument, usage)
	return 2
}
