package measure

import (
	"os"
	"slices"
	"testing"
	"time"
)

func TestCPUTime(t *testing.T) {
	t.Parallel()
	// The name may hold anything, and looks like fields here.
	stat := "42 (a) b (c d) S 1 42 42 0 -1 4194560 100 200 0 0 7 5 30 2 20 0 1 0 1234 0 0"
	if got, err := cpuTime(stat); err != nil || got != 440*time.Millisecond {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "42 (a) S 1 2 3", "42 (a) S 1 42 42 0 -1 4194560 100 200 0 0 x 5 30 2 20"} {
		if got, err := cpuTime(bad); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}

func TestField(t *testing.T) {
	t.Parallel()
	text := "Name:\tx\nVmRSS:\t  1234 kB\nnonvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t5\nempty:\n"
	for name, want := range map[string]int{"VmRSS:": 1234, "voluntary_ctxt_switches:": 5, "empty:": 0, "none:": 0} {
		if got := field(text, name); got != want {
			t.Errorf("%s %d, want %d", name, got, want)
		}
	}
}

// What this process uses is seen.
func TestCost(t *testing.T) {
	t.Parallel()
	before, err := costOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for after := before; after.cpu == before.cpu; {
		if after, err = costOf(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	if memory, err := resident(os.Getpid()); err != nil || memory < 1 {
		t.Errorf("resident: %v, %v", memory, err)
	}
	if _, err := costOf(-1); err == nil {
		t.Error("nobody has a cost")
	}
}

func TestLogOf(t *testing.T) {
	t.Parallel()
	for _, n := range []int{4, 100} {
		entries, last := logOf("box", n), uint64(0)
		for _, e := range entries {
			if e.After != last {
				t.Fatalf("an entry follows %d and not %d", e.After, last)
			}
			last += uint64(len(e.Events))
		}
		if last < uint64(n) || last > uint64(n)+2 {
			t.Errorf("%d events and not about %d", last, n)
		}
	}
}

func TestWanted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		names []string
		key   string
		want  bool
	}{
		{nil, "exec-cpu-50", true}, {[]string{"life", "exec"}, "exec-cpu-50", true}, {[]string{"life"}, "exec-cpu-50", false}, {[]string{"list"}, "list", true},
	} {
		if got := Wanted(c.names, c.key); got != c.want {
			t.Errorf("%s of %q: %v", c.key, c.names, got)
		}
	}
	if names := Groups(); len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(groups) {
		t.Errorf("two groups have one name: %q", names)
	}
}
