package links

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// process is one of this host: numbers are used again, so that it takes the start to name it.
type process struct {
	pid   int
	start uint64 // in clock ticks since the host's boot
}

// processOf names the process that has the number now.
func processOf(pid int) (process, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	// The second field is the program's name, which may hold anything; the start is the 22nd.
	const start = 22 - 3
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= start {
		return process{}, fmt.Errorf("/proc/%d/stat is %q", pid, text)
	}
	ticks, err := strconv.ParseUint(string(fields[start]), 10, 64)
	return process{pid, ticks}, err
}

// alive reports whether the process is still there.
func (p process) alive() bool {
	now, err := processOf(p.pid)
	return err == nil && now == p
}
