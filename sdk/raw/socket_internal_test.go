package raw

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSocketPath(t *testing.T) {
	long := "/" + strings.Repeat("d", 95)
	tests := []struct {
		name   string
		goos   string
		env    map[string]string
		runDir bool
		want   string
	}{
		{"runtime dir", "linux", map[string]string{"XDG_RUNTIME_DIR": "/r", "XDG_STATE_HOME": "/s", "HOME": "/h"}, true, "/r/agbox/agboxd.sock"},
		{"run user", "linux", map[string]string{"XDG_STATE_HOME": "/s", "HOME": "/h"}, true, "/run/user/42/agbox/agboxd.sock"},
		{"relative counts as unset", "linux", map[string]string{"XDG_RUNTIME_DIR": "r", "HOME": "/h"}, true, "/run/user/42/agbox/agboxd.sock"},
		{"state home", "linux", map[string]string{"XDG_STATE_HOME": "/s", "HOME": "/h"}, false, "/s/agbox/agboxd.sock"},
		{"default state home", "linux", map[string]string{"HOME": "/h"}, false, "/h/.local/state/agbox/agboxd.sock"},
		{"nowhere", "linux", nil, false, ""},
		{"too long", "linux", map[string]string{"XDG_RUNTIME_DIR": long}, false, ""},
		{"macOS", "darwin", map[string]string{"XDG_RUNTIME_DIR": "/r", "HOME": "/h"}, true, "/h/Library/Application Support/agbox/agboxd.sock"},
		{"macOS nowhere", "darwin", nil, false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := socketPath(tt.goos, 42,
				func(key string) string { return tt.env[key] },
				func(dir string) bool { return tt.runDir && dir == "/run/user/42" })
			if got != tt.want || (err != nil) != (tt.want == "") {
				t.Fatalf("got %q, %v; want %q", got, err, tt.want)
			}
			if err != nil && !errors.Is(err, ErrSocketPath) {
				t.Fatalf("%v is not ErrSocketPath", err)
			}
		})
	}
}

// TestOtherSocketPaths: who has no XDG_RUNTIME_DIR, or the usual one, finds a daemon that was started with less; one of one's
// own keeps apart.
func TestOtherSocketPaths(t *testing.T) {
	const state, usual = "/h/.local/state/agbox/agboxd.sock", "/run/user/42/agbox/agboxd.sock"
	for name, test := range map[string]struct {
		dir    string
		runDir bool
		want   []string
	}{
		"unset":              {"", true, []string{state}},
		"unset, no /run":     {"", false, nil},
		"the usual":          {"/run/user/42", true, []string{state}},
		"the usual, no /run": {"/run/user/42/", false, []string{state}},
		"one's own":          {"/mine", true, nil},
	} {
		env := map[string]string{"XDG_RUNTIME_DIR": test.dir, "HOME": "/h"}
		got := otherSocketPaths("linux", 42, func(key string) string { return env[key] },
			func(dir string) bool { return test.runDir && dir == "/run/user/42" })
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestDialElsewhere: a daemon that was started before there was a /run/user/<uid> is found from a session that has one.
func TestDialElsewhere(t *testing.T) {
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	there := filepath.Join(dir, "there")
	listener, err := net.Listen("unix", there)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c := &Client{socket: filepath.Join(dir, "here"), others: []string{there}}
	conn, err := c.dial(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	listener.Close()
	if _, err := c.dial(t.Context(), ""); err == nil {
		t.Error("nobody listens, and it connected")
	}
	if text := c.unavailable(""); !strings.Contains(text, c.socket) || !strings.Contains(text, there) {
		t.Errorf("where it looked is not said: %s", text)
	}
}
