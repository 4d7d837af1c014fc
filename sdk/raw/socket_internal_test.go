package raw

import (
	"errors"
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
