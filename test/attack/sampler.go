package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// mostMemory is what the daemon may hold, in bytes.
const mostMemory = 120_000_000

// use is what a process holds.
type use struct {
	resident, highest    int64 // bytes
	descriptors, threads int
}

func (u use) String() string {
	return fmt.Sprintf("%.1f MB, %d descriptors, %d threads", float64(u.resident)/1e6, u.descriptors, u.threads)
}

func usage(pid int) (u use, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return use{}, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "VmRSS:":
			u.resident = n << 10
		case "VmHWM:":
			u.highest = n << 10
		case "Threads:":
			u.threads = int(n)
		}
	}
	descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	u.descriptors = len(descriptors)
	return u, err
}

// sample watches the daemon's memory until ctx ends. Nothing tells of it; the kernel keeps the highest mark, so that no peak lies between
// two looks, and looking often says which attacks ran then.
func (a *arena) sample(ctx context.Context) {
	told := false
	for tick := time.NewTicker(200 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		if u, err := usage(a.Daemon.Pid()); err == nil && u.highest > mostMemory && !told {
			told = true
			a.problem("the daemon holds %d bytes, and held up to %d", u.resident, u.highest)
		}
	}
}
