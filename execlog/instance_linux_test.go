package execlog_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/execlog"
)

// TestOneInstance: however many watch, the process has one inotify instance for it, and none when all have left.
func TestOneInstance(t *testing.T) {
	var notices execlog.Notices
	before := instances(t)
	for range 2 {
		var watches []*execlog.Watch
		for range 300 {
			watches = append(watches, watch(t, &notices, filepath.Join(t.TempDir(), "log")))
		}
		if during := instances(t); during != before+1 {
			t.Errorf("%d inotify instances, before there were %d", during, before)
		}
		for _, w := range watches {
			w.Close()
		}
		if after := instances(t); after != before {
			t.Errorf("%d inotify instances are left of %d", after, before)
		}
	}
}

func instances(t *testing.T) (n int) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if target, _ := os.Readlink("/proc/self/fd/" + file.Name()); strings.Contains(target, "inotify") {
			n++
		}
	}
	return n
}
