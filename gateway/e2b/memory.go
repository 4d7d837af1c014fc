package e2b

import (
	"sync"
	"syscall"
)

// hostMemoryMB is what a sandbox without a limit may use where the gateway runs beside the daemon.
var hostMemoryMB = sync.OnceValue(func() int {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	return int(uint64(info.Totalram) * uint64(info.Unit) >> 20)
})
