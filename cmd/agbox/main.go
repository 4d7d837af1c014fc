// Command agbox drives agboxd from the shell: sandboxes, commands in them, and their events.
package main

import (
	"io"
	"os"
	"runtime/debug"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = ""

// stdio is where a run reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	os.Exit(run(os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr}))
}

func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}
