package links

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMemory: what the kernel counts in a life is known after that, and not in the next.
func TestMemory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "memory.oom_control")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var m memory
	if m.look() {
		t.Error("one of which nothing is known has run out of memory")
	}
	write("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
	m.begin(path)
	if m.look() {
		t.Error("it has run out of memory because an earlier one had")
	}
	write("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
	if !m.look() {
		t.Error("nobody knows that it ran out of memory")
	}
	m.end()
	if !m.look() {
		t.Error("it is forgotten with the group")
	}
	m.begin(filepath.Join(t.TempDir(), "none"))
	if m.look() {
		t.Error("the next life has run out of memory, too")
	}
}

func TestCounterIn(t *testing.T) {
	t.Parallel()
	for groups, want := range map[string]string{
		"9:pids:/docker/a\n4:memory:/docker/a\n0::/\n": "/sys/memory/docker/a/memory.oom_control",
		"0::/system.slice/docker-a.scope\n":            "/sys/system.slice/docker-a.scope/memory.events",
		"":                                             "",
	} {
		if got := counterIn("/sys", groups); got != want {
			t.Errorf("of %q the counter is %q, want %q", groups, got, want)
		}
	}
}
