// Package pid1 is the program that is PID 1 of a sandbox: see the command agbox-init.
package pid1

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/agbox-dev/agbox/guest/kernel"
)

// Version is what Hello tells of this program.
const Version = "dev"

// Main is PID 1 of a sandbox, as the options in args ask for, until that is to end; then it ends the process.
func Main(args []string) {
	o, problem := parseOptions(args)
	if problem == "" && os.Getpid() != 1 {
		problem = "must be PID 1 of a pid namespace: it signals every process that it can see"
	}
	if problem != "" {
		kernel.Warn(problem)
		os.Exit(2)
	}
	// What is done here takes microseconds, and most of it waits for each other: on one thread nobody has to be woken for that.
	runtime.GOMAXPROCS(1)
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

// threads is how many this process has at most: one that runs Go code, and one for each goroutine that may wait in the kernel (the
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
