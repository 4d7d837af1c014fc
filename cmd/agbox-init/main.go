// Agbox-init is PID 1 of a sandbox's primary container. It connects out to the daemon's socket,
// starts the commands that the daemon asks for, carries their output into the log files, and tells
// how they ended; it reaps what nobody else waits for and ends the sandbox when it is told to.
//
//	agbox-init [--socket=/.agbox/run/s] [--user=U[:G]] [--image-user=U[:G]] [--workdir=/workspace]
//	           [--own-workspace] [--tmpfs=PATH]... [--stop-grace=2s] [--start-limit=10s] [--entrypoint-words=N]
//	           [-- ENTRYPOINT... COMMAND...]
//	agbox-init handover [-- COMMAND...]
//	agbox-init file ACTION PATH...
//	agbox-init empty DIRECTORY
//	agbox-init relay --socket=PATH --logs=DIRECTORY --state=DIRECTORY
//	agbox-init connect PORT
//	agbox-init version
//
// The first form is the container's entrypoint. The first N words after "--", without N all of them,
// are the image's own entrypoint, the rest is the sandbox's main command. As soon as the daemon has
// sent Boot, the entrypoint runs once, with "agbox-init handover -- COMMAND..." as its arguments, or
// the command itself where there is no entrypoint. An entrypoint that is a program and no script, such
// as tini or python, gets COMMAND as it is and has handed over once it runs. All run as --user, else as the image's user;
// execs that name no user run as --user, else as agbox if the image knows one, else as the image's.
//
// # Goroutines
//
// One goroutine, sandbox.run, owns every decision and all state: it forks, reaps, signals and keeps
// the time, and it never blocks: whatever lies in the sandbox is opened, read or executed by the lookup, which reads accounts, and by the
// children that become commands, which only the forkers wait for. Around it, too: the dialer, which reads from the daemon, one writer per
// connection, the pump, which moves output, and the accepter of handovers. A panic in any of them
// prints its trace and ends the process, and the container with it: there is no half-alive PID 1.
//
// # Weight
//
// The binary is in every sandbox, so it does without fmt, net, reflect and os/exec.
package main

import (
	"os"

	"github.com/agbox-dev/agbox/guest/files/inside"
	"github.com/agbox-dev/agbox/guest/pid1"
	"github.com/agbox-dev/agbox/guest/relay/forwarder"
)

// Each mode ends the process.
var modes = map[string]func(args []string){
	"handover": pid1.HandOver,
	"file":     inside.Main,
	"empty":    inside.Empty,
	"relay":    forwarder.Main,
	"connect":  forwarder.Connect,
	"version": func([]string) {
		os.Stdout.WriteString("agbox-init " + pid1.Version + "\n")
		os.Exit(0)
	},
}

func main() {
	if len(os.Args) > 1 && modes[os.Args[1]] != nil {
		modes[os.Args[1]](os.Args[2:])
	}
	pid1.Main(os.Args[1:])
}
