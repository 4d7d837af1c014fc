package paths_test

import (
	"testing"

	"github.com/agbox-dev/agbox/paths"
)

func TestWithin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, dir string
		want      bool
	}{
		{"/a", "/a", true}, {"/a/b", "/a", true}, {"/a/b", "/a/", true}, {"/ab", "/a", false}, {"/", "/a", false}, {"/a", "/", true}, {"/", "/", true},
	} {
		if got := paths.Within(c.path, c.dir); got != c.want {
			t.Errorf("%s within %s: %v", c.path, c.dir, got)
		}
	}
}

func TestReserved(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/.agbox": paths.Home, "/.agbox/run/s": paths.Home, "/proc/1/mem": "/proc", "/var/log/agents-sandbox/x": paths.Logs,
		"/.agboxes": "", "/var/log": "", "/": "", "/workspace": "",
	} {
		if got := paths.Reserved(path); got != want {
			t.Errorf("%s lies in %q", path, got)
		}
	}
}
