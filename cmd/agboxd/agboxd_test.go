package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

// private points every path of the daemon below a short directory of the test's own, which it returns.
func private(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agboxd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for variable, sub := range map[string]string{"XDG_RUNTIME_DIR": "run", "XDG_DATA_HOME": "data", "XDG_CONFIG_HOME": "config"} {
		t.Setenv(variable, filepath.Join(dir, sub))
	}
	return dir
}

func configure(t *testing.T, dir, text string) string {
	t.Helper()
	path := filepath.Join(dir, "config", "agents-sandbox", "config.toml")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBadConfigIsRefused(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"unknown key":       {"[runtime]\nidle_ttl = '1m'\nidle_tll = '2m'", `:3: unknown key "runtime.idle_tll"`},
		"unknown section":   {"[rntime]\nidle_ttl = '1m'", `unknown key "rntime`},
		"not TOML":          {"[runtime", ":1:"},
		"bad duration":      {"[runtime]\nidle_ttl = 'soon'", ":2: runtime.idle_ttl"},
		"negative duration": {"[runtime]\n\nidle_ttl = '-1m'", ":3: runtime.idle_ttl must not be negative"},
		"no concurrency":    {"[runtime]\ncreate_concurrency = 0", ":2: runtime.create_concurrency must be at least 1"},
		"dotted key":        {"# a remark\nruntime.create_concurrency = 0", ":2: runtime.create_concurrency must be at least 1"},
		"inline table":      {"runtime = { stop_grace = '1s', create_concurrency = 0 }", ":1: runtime.create_concurrency must be at least 1"},
		"wrong type":        {"[runtime]\ncreate_concurrency = 'three'", ":2: runtime.create_concurrency"},
		"bad policy":        {"[runtime]\non_shutdown = 'explode'", `:2: runtime.on_shutdown: "explode" is not one of keep, stop, delete`},
		"bad transport":     {"[runtime]\nexec_transport = 'pigeon'", ":2: runtime.exec_transport"},
		"bad capability":    {"[sandbox]\nallowed_capabilities = ['SYS_ADMIN', 'FOO']", `:2: sandbox.allowed_capabilities: there is no capability "FOO"`},
		"bad level":         {"[log]\nlevel = 'shout'", ":2: log.level"},
		"bad host":          {"[docker]\nhost = 'nonsense'", ":2: docker.host"},
		"bad pool":          {"[network]\npool = 'fd00::/64'", ":2: network.pool must be an IPv4 range"},
		"bad size":          {"[limits]\nmax_memory = 'much'", `:2: limits.max_memory`},
		"more than most":    {"[limits]\ndefault_memory = '2g'\nmax_memory = '1g'", ":2: limits.default_memory must not be more than limits.max_memory"},
		"negative limit":    {"[limits]\nmax_cpus = -1.0", ":2: limits.default_cpus and limits.max_cpus must not be negative"},
		"bad prefix":        {"[network]\npool = '10.0.0.0/24'\nprefix = 20", ":3: network.prefix must lie between"},
		"pool too small":    {"[network]\npool = '10.0.0.0/29'", ":2: network.prefix must lie between"},
	} {
		t.Run(name, func(t *testing.T) {
			path := configure(t, private(t), test.text)
			var stderr bytes.Buffer
			accepted, end := context.WithCancel(t.Context())
			end() // or a daemon would run
			if code := run(accepted, nil, nil, &stderr, &stderr); code != 1 {
				t.Errorf("exit code is %d", code)
			}
			if text := stderr.String(); !strings.Contains(text, path) || !strings.Contains(text, test.want) {
				t.Errorf("stderr is %q, want the path and %q", text, test.want)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	dir := private(t)
	path := configure(t, dir, "[runtime]\nidle_ttl = '90s'\n[network]\npool = '10.99.0.0/20'\n[log]\nlevel = 'debug'\n")
	c, err := loadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	if c.Runtime.IdleTTL.Duration != 90*time.Second || c.Network.Pool.String() != "10.99.0.0/20" || c.Network.Prefix != 28 || c.Log.Level != -4 {
		t.Errorf("config is %+v", c)
	}
	if c, err := loadConfig(filepath.Join(dir, "none")); err != nil || !reflect.DeepEqual(c, defaults()) {
		t.Errorf("without a file the config is %+v, %v", c, err)
	}
}

func TestArguments(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"--version"}, nil, &stdout, &stderr); code != 0 || stdout.String() != "agboxd "+version+"\n" {
		t.Errorf("--version: %d, %q", code, stdout.String())
	}
	if code := run(t.Context(), []string{"--socket=/tmp/x"}, nil, &stdout, &stderr); code != 2 || !strings.Contains(stderr.String(), `takes no argument "--socket=/tmp/x"`) {
		t.Errorf("an argument: %d, %q", code, stderr.String())
	}
	stdout.Reset()
	if code := run(t.Context(), []string{"backup", "--help"}, nil, &stdout, &stderr); code != 0 || stdout.String() != usage {
		t.Errorf("backup --help: %d, %q", code, stdout.String())
	}
	stderr.Reset()
	if code := run(t.Context(), []string{"backup", "--to"}, nil, &stdout, &stderr); code != 2 || !strings.Contains(stderr.String(), "the file to write") {
		t.Errorf("backup --to: %d, %q", code, stderr.String())
	}
}

func TestDockerCannotBeReached(t *testing.T) {
	dir := private(t)
	withInit(t)
	configure(t, dir, fmt.Sprintf("[docker]\nhost = 'unix://%s/no.sock'\n", dir))
	var stderr bytes.Buffer
	if code := run(t.Context(), nil, nil, &stderr, &stderr); code != 1 {
		t.Errorf("exit code is %d", code)
	}
	for _, want := range []string{dir + "/no.sock", "cannot be reached", "systemctl start docker", "DOCKER_HOST"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("stderr is %q, want %q", stderr.String(), want)
		}
	}
}

func TestPlaceInit(t *testing.T) {
	withInit(t)
	data := t.TempDir()
	path, err := placeInit(data)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := embedded.ReadFile("embedded/agbox-init")
	if err := os.WriteFile(path, want[:100], 0o755); err != nil { // as if the disk had been full
		t.Fatal(err)
	}
	again, err := placeInit(data)
	if err != nil || again != path {
		t.Fatalf("placed at %q, %v; then at %q", path, err, again)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("a damaged agbox-init was not replaced: %v", err)
	}
}

// withInit skips a test that needs what only make build puts in place.
func withInit(t *testing.T) {
	t.Helper()
	if _, err := embedded.ReadFile("embedded/agbox-init"); err != nil {
		skiplog.Skip(t, "agboxd is built without agbox-init: run make build first")
	}
}

// TestServe runs the daemon as main does: it answers, keeps others out, and ends on its signal.
func TestServe(t *testing.T) {
	dockertest.Engine(t)
	withInit(t)
	private(t)
	var stderr bytes.Buffer
	ctx, signal := context.WithCancel(t.Context())
	defer signal()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, nil, nil, &stderr, &stderr) }()

	client, err := raw.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for start := time.Now(); ; {
		pong, err := client.Ping(t.Context(), &agboxv1.PingRequest{})
		if err == nil {
			if pong.Daemon != "agboxd" || pong.Version != version {
				t.Errorf("ping says %v", pong)
			}
			break
		}
		if time.Since(start) > 20*time.Second {
			t.Fatal(err)
		}
	}

	var second bytes.Buffer
	if code := run(t.Context(), nil, nil, &second, &second); code != 1 {
		t.Errorf("a second daemon exits with %d", code)
	}
	for _, want := range []string{"another agboxd is running with pid " + fmt.Sprint(os.Getpid()), "agboxd.lock"} {
		if !strings.Contains(second.String(), want) {
			t.Errorf("a second daemon says %q, want %q", second.String(), want)
		}
	}

	signal()
	if code := <-ended; code != 0 {
		t.Errorf("exit code is %d: %s", code, stderr.String())
	}
	for line := range strings.Lines(stderr.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("stderr has a line that is not JSON: %q", line)
		}
	}
}
