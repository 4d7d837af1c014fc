package links

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	inside "github.com/agbox-dev/agbox/guest/process"
)

// memory tells whether the kernel has killed a process of a primary's present, or last, life for want of memory. An engine hears of that
// late, or never when the container ends by it; the cgroup knows before the process dies, and is there a moment longer.
type memory struct {
	mu      sync.Mutex
	counter *inside.OOMCounter
	before  uint64
	starved bool
}

// begin is for a new life, whose counter is in the file; it may not be there.
func (m *memory) begin(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.close()
	m.starved = false
	if counter, err := inside.OOMCounterAt(path); err == nil {
		m.counter, m.before = &counter, counter.Kills()
	}
}

// look is for when the life may have ended, as soon as that is known.
func (m *memory) look() (starved bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.starved = m.starved || m.counter != nil && m.counter.Kills() > m.before
	return m.starved
}

// end lets go of the file.
func (m *memory) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.close()
}

func (m *memory) close() {
	if m.counter != nil {
		m.counter.Close()
		m.counter = nil
	}
}

// counterOf is the file with the counter of a process of this host, "" where that is not known.
func counterOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	return counterIn("/sys/fs/cgroup", string(text))
}

// counterIn finds it by what /proc says of the process's groups: that of cgroup v1, where memory is counted by it, else that of v2.
func counterIn(root, groups string) (path string) {
	for line := range strings.Lines(groups) {
		switch fields := strings.SplitN(strings.TrimSpace(line), ":", 3); {
		case len(fields) != 3:
		case fields[1] == "memory":
			return filepath.Join(root, "memory", fields[2], "memory.oom_control")
		case fields[0] == "0" && fields[1] == "":
			path = filepath.Join(root, fields[2], "memory.events")
		}
	}
	return path
}

// Starved reports whether the kernel has killed a process of the sandbox's primary for want of memory in its present, or last, life,
// as far as is known.
func (ls *Links) Starved(sandboxID string) bool {
	l := ls.Find(sandboxID)
	return l != nil && l.memory.look()
}
