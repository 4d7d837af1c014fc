//go:build crashpoints

package persist

import (
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
)

var (
	crashAt, _    = strconv.ParseInt(os.Getenv("AGBOX_CRASH_AT"), 10, 64)
	crashesPassed atomic.Int64
)

// crashPoint ends the process as kill -9 does when it is reached for the time that AGBOX_CRASH_AT names, counted
// from 1: odd numbers are before a commit, even ones after it and before anybody hears of it.
func crashPoint() {
	if crashesPassed.Add(1) == crashAt {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
