package measure

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cost is what processes have used since their start.
type cost struct {
	cpu      time.Duration // children that they have waited for included
	switches int           // of their threads, of their own accord
}

// costOf fails where a process has ended.
func costOf(pids ...int) (sum cost, err error) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return cost{}, err
		}
		cpu, err := cpuTime(string(stat))
		if err != nil {
			return cost{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		sum.cpu += cpu
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil {
			return cost{}, err
		}
		for _, path := range threads {
			if status, err := os.ReadFile(path); err == nil { // a thread may have ended
				sum.switches += field(string(status), "voluntary_ctxt_switches:")
			}
		}
	}
	return sum, nil
}

// tick is the unit of times in /proc, on every machine that Go knows.
const tick = 10 * time.Millisecond

// cpuTime reads what a /proc/<pid>/stat says of the time of a process and of the children that it has waited for.
func cpuTime(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 15 {
		return 0, fmt.Errorf("%d fields and not 15", len(fields))
	}
	var sum time.Duration
	for _, field := range fields[11:15] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// field returns the number after a name at the beginning of a line, 0 where there is none.
func field(text, name string) int {
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, name); found {
			if fields := strings.Fields(rest); len(fields) > 0 {
				n, _ := strconv.Atoi(fields[0])
				return n
			}
		}
	}
	return 0
}

// resident is a process's resident memory in MB, pages of mapped files included.
func resident(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return float64(field(string(status), "VmRSS:")) / 1024, err
}

// forks returns the CPU time of a plain fork and exec of true, parent and child together: the same program as in the sandbox, and
// the cheapest way to fork that there is.
func forks(n int) (time.Duration, error) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return 0, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	files := []uintptr{null.Fd(), null.Fd(), null.Fd()}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := used()
	if err != nil {
		return 0, err
	}
	for range n {
		pid, err := syscall.ForkExec(busybox, []string{"true"}, &syscall.ProcAttr{Files: files, Env: []string{"PATH=/bin"}})
		if err != nil {
			return 0, err
		}
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || status != 0 {
			return 0, fmt.Errorf("true ended with %d: %w", status, err)
		}
	}
	after, err := used()
	return (after - before) / time.Duration(n), err
}

// used is the CPU time of this thread, and of all children that were waited for.
func used() (time.Duration, error) {
	const thread = 1 // RUSAGE_THREAD
	var own, children syscall.Rusage
	if err := syscall.Getrusage(thread, &own); err != nil {
		return 0, err
	}
	err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &children)
	return time.Duration(own.Utime.Nano() + own.Stime.Nano() + children.Utime.Nano() + children.Stime.Nano()), err
}
