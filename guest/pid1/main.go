// Package pid1 is the program that is PID 1 of a sandbox: see the command agbox-init.
package pid1

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
)

// version is set by the linker.
var version = "dev"

// Main runs agbox-init as args, without the program's name, ask for, and ends the process.
func Main(args []string) {
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

// threads is how many this process has at most: two that run Go code, and one for each goroutine that may wait in the kernel (the
// reader and the writer of a connection, the accepter, the pump, the lookup, the forkers, signals), the runtime's own, and some to spare.
const threads = 12 + forkers

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
