// Agbox-init is PID 1 of a sandbox's primary container. It connects out to the daemon's socket,
// starts the commands that the daemon asks for, carries their output into the log files, and tells
// how they ended; it reaps what nobody else waits for and ends the sandbox when it is told to.
//
//	agbox-init [--socket=/.agbox/run/s] [--user=U[:G]] [--image-user=U[:G]] [--workdir=/workspace]
//	           [--own-workspace] [--tmpfs=PATH]... [--stop-grace=2s] [--start-limit=10s] [--entrypoint-words=N]
//	           [-- ENTRYPOINT... COMMAND...]
//	agbox-init handover [-- COMMAND...]
//	agbox-init file ACTION PATH...
//	agbox-init relay --socket=PATH --logs=DIRECTORY --state=DIRECTORY
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
// children that become commands. Around it, too: the dialer, which reads from the daemon, one writer per
// connection, the pump, which moves output, and the accepter of handovers. A panic in any of them
// prints its trace and ends the process, and the container with it: there is no half-alive PID 1.
//
// # Weight
//
// The binary is in every sandbox, so it does without fmt, net, reflect and os/exec.
package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// version is set by the linker.
var version = "dev"

type options struct {
	socket     string
	user       string
	imageUser  string
	workdir    string
	own        bool     // what is mounted on the workspace is the sandbox's own
	tmpfs      []string // where memory is mounted
	stopGrace  time.Duration
	maxOutput  uint64 // of the primary's own command, 0: no limit
	headroom   uint64 // what output leaves of the disk, in bytes
	startLimit time.Duration
	entrypoint []string
	command    []string
}

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "version" {
		os.Stdout.WriteString("agbox-init " + version + "\n")
		return
	}
	if len(args) > 0 && args[0] == "handover" {
		handOver(args[1:])
	}
	if len(args) > 0 && args[0] == "file" {
		fileMode(args[1:])
	}
	if len(args) > 0 && args[0] == "empty" {
		emptyMode(args[1:])
	}
	if len(args) > 0 && args[0] == "relay" {
		relayMode(args[1:])
	}
	o, problem := parseOptions(args)
	if problem == "" && os.Getpid() != 1 {
		problem = "must be PID 1 of a pid namespace: it signals every process that it can see"
	}
	if problem != "" {
		warn(problem)
		os.Exit(2)
	}
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(20)
	reserveThreads()
	// Commands that run as the same user may set no limits of this process: the kernel lets them only where all ids are the same.
	// Where that is not allowed, they are not.
	syscall.Setresgid(-1, -1, apartGroup)
	// Nor may they look into it.
	syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0)
	syscall.Umask(0o022)
	s := newSandbox(o)
	s.run()
	os.Exit(0)
}

// apartGroup is the saved group of PID 1, which nothing goes by. A command has its own.
const apartGroup = 65534

func parseOptions(args []string) (o options, problem string) {
	o = options{socket: "/.agbox/run/s", workdir: workspace, stopGrace: 2 * time.Second, startLimit: startLimit}
	var words []string
	entrypointWords := -1 // all
	for i, arg := range args {
		if arg == "--" {
			words = args[i+1:]
			break
		}
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "--socket":
			o.socket = value
		case "--user":
			o.user = value
		case "--image-user":
			o.imageUser = value
		case "--workdir":
			o.workdir = value
		case "--own-workspace":
			o.own = true
		case "--tmpfs":
			o.tmpfs = append(o.tmpfs, value)
		case "--stop-grace", "--start-limit":
			d, err := time.ParseDuration(value)
			if err != nil || d < 0 {
				return o, arg + ": not a duration, such as 2s"
			}
			if name == "--stop-grace" {
				o.stopGrace = d
			} else {
				o.startLimit = d
			}
		case "--max-output", "--disk-headroom":
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return o, arg + ": not a number of bytes"
			}
			if name == "--max-output" {
				o.maxOutput = n
			} else {
				o.headroom = n
			}
		case "--entrypoint-words":
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return o, arg + ": not a number of words"
			}
			entrypointWords = n
		default:
			return o, arg + ": no such option"
		}
	}
	if !strings.HasPrefix(o.workdir, "/") {
		return o, "--workdir=" + o.workdir + ": must be absolute"
	}
	if entrypointWords > len(words) {
		return o, "--entrypoint-words=" + strconv.Itoa(entrypointWords) + ": only " + strconv.Itoa(len(words)) + ` words follow "--"`
	}
	if entrypointWords < 0 {
		entrypointWords = len(words)
	}
	o.entrypoint, o.command = words[:entrypointWords], words[entrypointWords:]
	return o, ""
}

// threads is how many this process has at most: two that run Go code, and one for each goroutine that may wait in the kernel (the
// reader and the writer of a connection, the accepter, the pump, the lookup, signals), the runtime's own, and some to spare.
const threads = 12

// reserveThreads makes all threads now. Later there may be no room for one under the sandbox's limit of processes, or of memory, of
// which Go's runtime dies. It keeps those that are idle.
func reserveThreads() {
	var here, done sync.WaitGroup
	here.Add(threads)
	done.Add(1)
	for range threads {
		go func() {
			runtime.LockOSThread()
			here.Done()
			done.Wait()
			runtime.UnlockOSThread()
		}()
	}
	here.Wait()
	done.Done()
}

// warn writes to the container's own log.
func warn(text string) { os.Stderr.WriteString("agbox-init: " + text + "\n") }
