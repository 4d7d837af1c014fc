package spec_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/hostpath"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

// machine is a host on a directory of the test's own.
type machine struct {
	t    testing.TB
	root string
	env  map[string]string
}

func newMachine(t testing.TB) *machine {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, root: root, env: map[string]string{}}
	m.dir("home")
	m.dir("proj")
	m.file("proj/main.go")
	return m
}

func (m *machine) path(rel string) string { return filepath.Join(m.root, rel) }

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) dir(rel string) string {
	m.t.Helper()
	m.must(os.MkdirAll(m.path(rel), 0o755))
	return m.path(rel)
}

func (m *machine) file(rel string) string {
	m.t.Helper()
	m.dir(filepath.Dir(rel))
	m.must(os.WriteFile(m.path(rel), []byte(rel), 0o644))
	return m.path(rel)
}

func (m *machine) link(rel, to string) string {
	m.t.Helper()
	m.dir(filepath.Dir(rel))
	m.must(os.Symlink(to, m.path(rel)))
	return m.path(rel)
}

func (m *machine) fifo(rel string) string {
	m.t.Helper()
	m.dir(filepath.Dir(rel))
	m.must(unix.Mkfifo(m.path(rel), 0o600))
	return m.path(rel)
}

// socket listens at rel. A socket's path is short by nature, so it is bound by a relative name.
func (m *machine) socket(rel string) string {
	m.t.Helper()
	short, err := os.MkdirTemp("", "s")
	m.must(err)
	m.t.Cleanup(func() { os.RemoveAll(short) })
	listener, err := net.Listen("unix", filepath.Join(short, "s"))
	m.must(err)
	m.t.Cleanup(func() { listener.Close() })
	m.dir(filepath.Dir(rel))
	m.must(os.Link(filepath.Join(short, "s"), m.path(rel)))
	return m.path(rel)
}

func (m *machine) host() spec.Host {
	return spec.Host{
		Places: hostpath.Places{
			Home:   m.path("home"),
			Getenv: func(key string) string { return m.env[key] },
			Own:    []string{m.path("home/.local/share/agents-sandbox"), m.path("run/agbox")},
		},
		DefaultIdleTTL: 30 * time.Minute,
	}
}

func (m *machine) resolve(s *agboxv1.CreateSpec) (*spec.Resolved, error) {
	return spec.Resolve(&agboxv1.CreateSandboxRequest{CreateSpec: s}, m.host())
}

// wantRefusal checks an error's reason, field and a part of its message.
func wantRefusal(t *testing.T, err error, reason, field, part string) {
	t.Helper()
	var refused *spec.Error
	if !errors.As(err, &refused) {
		t.Fatalf("error %v, want reason %s on %s", err, reason, field)
	}
	if refused.Reason != reason || refused.Field != field || !strings.Contains(refused.Message, part) {
		t.Errorf("got reason %s, field %s, message %q\nwant %s, %s, %q", refused.Reason, refused.Field, refused.Message, reason, field, part)
	}
}

func mount(source, target string) *agboxv1.MountSpec {
	return &agboxv1.MountSpec{Source: source, Target: target}
}

func service(name string, test ...string) *agboxv1.ServiceSpec {
	s := &agboxv1.ServiceSpec{Name: name, Image: "db:1"}
	if test != nil {
		s.Healthcheck = &agboxv1.HealthcheckConfig{Test: test}
	}
	return s
}

// refusal is a change to a spec that makes it wrong.
type refusal struct {
	name                string
	edit                func(m *machine, s *agboxv1.CreateSpec)
	reason, field, part string // field is below create_spec
}

func TestRefusals(t *testing.T) {
	type check = agboxv1.HealthcheckConfig
	cmd := []string{"CMD", "true"}
	seconds := func(n float64) *durationpb.Duration { return durationpb.New(time.Duration(n * float64(time.Second))) }
	checkRefusals(t, []refusal{
		{"no image", func(_ *machine, s *agboxv1.CreateSpec) { s.Image = "" }, spec.ReasonImageRequired, "image", "name one"},
		{"image with blank", func(_ *machine, s *agboxv1.CreateSpec) { s.Image = "a b" }, spec.ReasonImageInvalid, "image", `"a b"`},
		{"image like a flag", func(_ *machine, s *agboxv1.CreateSpec) { s.Image = "--privileged" }, spec.ReasonImageInvalid, "image", "--privileged"},
		{"env without name", func(_ *machine, s *agboxv1.CreateSpec) { s.Envs = map[string]string{"": "x"} }, spec.ReasonEnvInvalid, "envs", "empty name"},
		{"env with =", func(_ *machine, s *agboxv1.CreateSpec) { s.Envs = map[string]string{"A=B": "x"} }, spec.ReasonEnvInvalid, `envs["A=B"]`, "not a variable name"},
		{"env value with NUL", func(_ *machine, s *agboxv1.CreateSpec) { s.Envs = map[string]string{"A": "secret\x00"} }, spec.ReasonEnvInvalid, `envs["A"]`, "NUL"},
		{"labels that are too large", func(_ *machine, s *agboxv1.CreateSpec) {
			s.Labels = map[string]string{"a": strings.Repeat("x", 60_000), "b": strings.Repeat("x", 6_000)}
		}, spec.ReasonLabelInvalid, `labels["b"]`, "65536 bytes"},
		{"env value that is too long", func(_ *machine, s *agboxv1.CreateSpec) {
			s.Envs = map[string]string{"A": strings.Repeat("x", 128<<10)}
		}, spec.ReasonEnvInvalid, `envs["A"]`, "131074 bytes"},
		{"envs that are too large", func(_ *machine, s *agboxv1.CreateSpec) {
			s.Envs = map[string]string{}
			for i := range 11 {
				s.Envs[fmt.Sprintf("A%02d", i)] = strings.Repeat("x", 100_000)
			}
		}, spec.ReasonCommandInvalid, "command", "1100055 bytes"},
		{"label without key", func(_ *machine, s *agboxv1.CreateSpec) { s.Labels = map[string]string{"": "x"} }, spec.ReasonLabelInvalid, "labels", `"x"`},
		{"label with NUL", func(_ *machine, s *agboxv1.CreateSpec) { s.Labels = map[string]string{"a": "\x00"} }, spec.ReasonLabelInvalid, `labels["a"]`, "NUL"},
		{"negative idle_ttl", func(_ *machine, s *agboxv1.CreateSpec) { s.IdleTtl = seconds(-1) }, spec.ReasonDurationNegative, "idle_ttl", "-1s"},
		{"malformed idle_ttl", func(_ *machine, s *agboxv1.CreateSpec) { s.IdleTtl = &durationpb.Duration{Nanos: 2e9} }, spec.ReasonDurationInvalid, "idle_ttl", "2000000000 ns"},

		{"relative source", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = "proj" }, spec.ReasonSourceNotAbsolute, "mounts[0].source", `"proj"`},
		{"empty source", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = "" }, spec.ReasonSourceNotAbsolute, "mounts[0].source", "absolute"},
		{"source with NUL", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = "/a\x00" }, spec.ReasonSourceNotAbsolute, "mounts[0].source", `\x00`},
		{"missing source", func(m *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = m.path("none") }, spec.ReasonSourceNotFound, "mounts[0].source", "create it first"},
		{"source below a file", func(m *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = m.path("proj/main.go/x") }, spec.ReasonSourceNotFound, "mounts[0].source", "main.go/x"},
		{"source that cannot be looked at", func(m *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = m.path(strings.Repeat("x", 300)) }, spec.ReasonSourceUnreadable, "mounts[0].source", "name too long"},
		{"source is a link", func(m *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = m.link("ln", m.path("proj")) }, spec.ReasonSourceSymlink, "mounts[0].source", "/proj"},
		{"source through a link", func(m *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = m.link("ln", "proj") + "/main.go" }, spec.ReasonSourceSymlink, "mounts[0].source", "/proj/main.go"},
		{"source is a dangling link", func(m *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = m.link("ln", "gone") }, spec.ReasonSourceSymlink, "mounts[0].source", "nowhere"},
		{"source is a fifo", func(m *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = m.fifo("pipe") }, spec.ReasonSourceKind, "mounts[0].source", "named pipe"},
		{"source is a socket", func(m *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = m.socket("sock") }, spec.ReasonSourceKind, "mounts[0].source", "a socket"},
		{"source is a device", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = "/dev/null" }, spec.ReasonSourceProtected, "mounts[0].source", "lies in the kernel's"},
		{"source in /proc", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = "/proc/self/root/etc" }, spec.ReasonSourceSymlink, "mounts[0].source", `"/etc"`},
		{"source is /sys", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = "/sys" }, spec.ReasonSourceProtected, "mounts[0].source", "is the kernel's"},
		{"source is the root", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = "/" }, spec.ReasonSourceProtected, "mounts[0].source", "contains"},
		{"source holds the engine's socket", func(m *machine, s *agboxv1.CreateSpec) {
			m.env["DOCKER_HOST"] = "unix://" + m.socket("run/engine/d.sock")
			s.Mounts[0].Source = m.path("run/engine")
		}, spec.ReasonSourceProtected, "mounts[0].source", "contains the container engine's socket"},
		{"source is the engine's socket by a hard link", func(m *machine, s *agboxv1.CreateSpec) {
			socket := m.socket("run/engine/d.sock")
			m.env["DOCKER_HOST"] = "unix://" + socket
			m.must(os.Link(socket, m.path("proj/innocent")))
			s.Mounts[0].Source = m.path("proj/innocent")
		}, spec.ReasonSourceProtected, "mounts[0].source", "is the container engine's socket"},
		{"link to the engine's socket", func(m *machine, s *agboxv1.CreateSpec) {
			m.env["DOCKER_HOST"] = "unix://" + m.socket("run/engine/d.sock")
			s.Mounts[0].Source = m.link("ln", "run/engine/d.sock")
		}, spec.ReasonSourceProtected, "mounts[0].source", "is the container engine's socket"},
		{"source holds the rootless socket", func(m *machine, s *agboxv1.CreateSpec) {
			m.env["XDG_RUNTIME_DIR"] = m.dir("run/user")
			m.socket("run/user/docker.sock")
			s.Mounts[0].Source = m.path("run/user")
		}, spec.ReasonSourceProtected, "mounts[0].source", "docker.sock"},
		{"home holds our data", func(m *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = m.path("home") }, spec.ReasonSourceProtected, "mounts[0].source", "contains agboxd's own data"},
		{"our data", func(m *machine, s *agboxv1.CreateSpec) {
			s.Mounts[0].Source = m.dir("home/.local/share/agents-sandbox")
		}, spec.ReasonSourceProtected, "mounts[0].source", "is agboxd's own data"},
		{"in our data", func(m *machine, s *agboxv1.CreateSpec) {
			s.Mounts[0].Source = m.file("home/.local/share/agents-sandbox/ids.db")
		}, spec.ReasonSourceProtected, "mounts[0].source", "lies in agboxd's own data"},
		{"our data behind a link", func(m *machine, s *agboxv1.CreateSpec) {
			m.dir("elsewhere/agbox")
			m.link("run", "elsewhere")
			s.Mounts[0].Source = m.path("elsewhere")
		}, spec.ReasonSourceProtected, "mounts[0].source", "contains agboxd's own data"},

		{"relative target", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Target = "w" }, spec.ReasonTargetNotAbsolute, "mounts[0].target", `"w"`},
		{"empty target", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Target = "" }, spec.ReasonTargetNotAbsolute, "mounts[0].target", "not absolute"},
		{"target with NUL", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Target = "/w\x00" }, spec.ReasonTargetNotAbsolute, "mounts[0].target", "NUL"},
		{"target with ..", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Target = "/w/../proc" }, spec.ReasonTargetTraversal, "mounts[0].target", "/w/../proc"},
		{"target is the root", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Target = "//" }, spec.ReasonTargetReserved, "mounts[0].target", "/workspace"},
		{"target in .agbox", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Target = "/.agbox/init" }, spec.ReasonTargetReserved, "mounts[0].target", "/.agbox"},
		{"target in /dev", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Target = "/dev//shm" }, spec.ReasonTargetReserved, "mounts[0].target", "/dev"},
		{"target is the log directory", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Target = "/var/log/agents-sandbox/" }, spec.ReasonTargetReserved, "mounts[0].target", "needs for itself"},
		{"target twice", func(m *machine, s *agboxv1.CreateSpec) {
			s.Mounts = append(s.Mounts, mount(m.path("proj"), "/work/./"))
		}, spec.ReasonTargetRepeated, "mounts[1].target", "create_spec.mounts[0].target"},
		{"target of mount and copy", func(_ *machine, s *agboxv1.CreateSpec) { s.Copies[0].Target = "/work" }, spec.ReasonTargetRepeated, "copies[0].target", "mounts[0]"},
		{"target of mount and tool", func(m *machine, s *agboxv1.CreateSpec) {
			m.dir("home/.npm")
			s.BuiltinTools, s.Mounts[0].Target = []string{"npm"}, "/home/agbox/.npm"
		}, spec.ReasonTargetRepeated, "builtin_tools[0]", "mounts[0]"},

		{"relative copy source", func(_ *machine, s *agboxv1.CreateSpec) { s.Copies[0].Source = "./proj" }, spec.ReasonSourceNotAbsolute, "copies[0].source", "./proj"},
		{"relative copy target", func(_ *machine, s *agboxv1.CreateSpec) { s.Copies[0].Target = "x" }, spec.ReasonTargetNotAbsolute, "copies[0].target", `"x"`},
		{"copy source is a link", func(m *machine, s *agboxv1.CreateSpec) { s.Copies[0].Source = m.link("ln", "proj") }, spec.ReasonSourceSymlink, "copies[0].source", "/proj"},
		{"copy of the kernel's", func(_ *machine, s *agboxv1.CreateSpec) { s.Copies[0].Source = "/proc/sys" }, spec.ReasonSourceProtected, "copies[0].source", "lies in"},
		{"copy meets our data", func(m *machine, s *agboxv1.CreateSpec) {
			m.dir("home/.local/share/agents-sandbox")
			s.Copies[0].Source = m.path("home")
		}, spec.ReasonSourceProtected, "copies[0].source", "exclude it"},
		{"copy into a read-only mount", func(_ *machine, s *agboxv1.CreateSpec) { s.Copies[0].Target = "/work/sub" }, spec.ReasonCopyTargetReadOnly, "copies[0].target", `"/work"`},
		{"copy with a link out", func(m *machine, s *agboxv1.CreateSpec) { m.link("proj/up", "../home") }, spec.ReasonCopyLinkEscapes, "copies[0].source", "/proj/up"},
		{"copy with a fifo", func(m *machine, s *agboxv1.CreateSpec) { m.fifo("proj/pipe") }, spec.ReasonCopyEntryKind, "copies[0].source", "exclude it"},
		{"malformed pattern", func(_ *machine, s *agboxv1.CreateSpec) { s.Copies[0].ExcludePatterns = []string{"a", "[x"} }, spec.ReasonExcludePattern, "copies[0].exclude_patterns[1]", `"[x"`},

		{"unknown mode", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Mode = "cow " }, spec.ReasonMountModeInvalid, "mounts[0].mode", `"cow " is none of ro, rw, cow`},
		{"writable and read-only", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Mode, s.Mounts[0].Writable = "ro", true }, spec.ReasonMountModeInvalid, "mounts[0].mode", `"ro" contradicts writable: true`},
		{"writable and copy-on-write", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Mode, s.Mounts[0].Writable = "cow", true }, spec.ReasonMountModeInvalid, "mounts[0].mode", `"cow" contradicts writable: true`},
		{"unknown mode of a tool", func(_ *machine, s *agboxv1.CreateSpec) { s.BuiltinTools = []string{"npm:ro"} }, spec.ReasonToolModeInvalid, "builtin_tools[0]", `"npm:ro" ends in a mode that is none of rw, cow`},
		{"tool in two modes", func(m *machine, s *agboxv1.CreateSpec) { s.BuiltinTools = []string{"npm", "npm:rw"} }, spec.ReasonToolRepeated, "builtin_tools[1]", `"npm" is named twice`},
		{"unknown tool", func(_ *machine, s *agboxv1.CreateSpec) { s.BuiltinTools = []string{"vim"} }, spec.ReasonToolUnknown, "builtin_tools[0]", "claude, codex, git, uv, npm, apt"},
		{"tool twice", func(_ *machine, s *agboxv1.CreateSpec) { s.BuiltinTools = []string{"git", "uv", "git"} }, spec.ReasonToolRepeated, "builtin_tools[2]", `"git"`},
		{"claude without its directory", func(m *machine, s *agboxv1.CreateSpec) {
			m.file("home/.claude.json")
			s.BuiltinTools = []string{"claude"}
		}, spec.ReasonToolSourceMissing, "builtin_tools[0]", "/.claude"},
		{"claude without its file", func(m *machine, s *agboxv1.CreateSpec) {
			m.dir("home/.claude")
			s.BuiltinTools = []string{"claude"}
		}, spec.ReasonToolSourceMissing, "builtin_tools[0]", ".claude.json"},
		{"codex without .agents", func(m *machine, s *agboxv1.CreateSpec) {
			m.dir("home/.codex")
			s.BuiltinTools = []string{"codex"}
		}, spec.ReasonToolSourceMissing, "builtin_tools[0]", ".agents"},
		{"ssh agent that is the engine", func(m *machine, s *agboxv1.CreateSpec) {
			m.env["SSH_AUTH_SOCK"] = m.socket("run/engine/d.sock")
			m.env["DOCKER_HOST"] = "unix://" + m.env["SSH_AUTH_SOCK"]
			s.BuiltinTools = []string{"git"}
		}, spec.ReasonSourceProtected, "builtin_tools[0]", "container engine's socket"},
		{"tool directory that holds our data", func(m *machine, s *agboxv1.CreateSpec) {
			m.dir("run")
			m.link("home/.npm", "../run")
			s.BuiltinTools = []string{"npm"}
		}, spec.ReasonSourceProtected, "builtin_tools[0]", "contains agboxd's own data"},

		{"service without name", func(_ *machine, s *agboxv1.CreateSpec) { s.RequiredServices[0].Name = "" }, spec.ReasonServiceNameRequired, "required_services[0].name", "no name"},
		{"service name with slash", func(_ *machine, s *agboxv1.CreateSpec) { s.RequiredServices[0].Name = "a/b" }, spec.ReasonServiceNameInvalid, "required_services[0].name", "a/b"},
		{"service name too long", func(_ *machine, s *agboxv1.CreateSpec) { s.RequiredServices[0].Name = strings.Repeat("a", 64) }, spec.ReasonServiceNameInvalid, "required_services[0].name", "1 to 63"},
		{"service name twice", func(_ *machine, s *agboxv1.CreateSpec) { s.OptionalServices[0].Name = "DB" }, spec.ReasonServiceNameRepeated, "optional_services[0].name", "create_spec.required_services[0]"},
		{"service without image", func(_ *machine, s *agboxv1.CreateSpec) { s.RequiredServices[0].Image = "" }, spec.ReasonServiceImageRequired, "required_services[0].image", "name one"},
		{"service with bad env", func(_ *machine, s *agboxv1.CreateSpec) {
			s.RequiredServices[0].Envs = map[string]string{"": ""}
		}, spec.ReasonEnvInvalid, "required_services[0].envs", "empty name"},
		{"required without healthcheck", func(_ *machine, s *agboxv1.CreateSpec) { s.RequiredServices[0].Healthcheck = nil }, spec.ReasonHealthcheckRequired, "required_services[0].healthcheck", "make it optional"},
		{"post start without healthcheck", func(_ *machine, s *agboxv1.CreateSpec) { s.OptionalServices[0].PostStartOnPrimary = []string{"x"} }, spec.ReasonHealthcheckRequired, "optional_services[0].healthcheck", "post_start_on_primary"},
		{"post start with NONE", func(_ *machine, s *agboxv1.CreateSpec) {
			s.OptionalServices[0] = service("cache", "NONE")
			s.OptionalServices[0].PostStartOnPrimary = []string{"x"}
		}, spec.ReasonHealthcheckRequired, "optional_services[0].healthcheck", "post_start_on_primary"},
		{"post start with an empty command", func(_ *machine, s *agboxv1.CreateSpec) {
			s.RequiredServices[0].PostStartOnPrimary = []string{"x", " "}
		}, spec.ReasonPostStartInvalid, "required_services[0].post_start_on_primary[1]", `" "`},
		{"empty test", func(_ *machine, s *agboxv1.CreateSpec) { s.RequiredServices[0].Healthcheck = &check{} }, spec.ReasonHealthcheckTestInvalid, "required_services[0].healthcheck.test", "empty"},
		{"test without CMD", func(_ *machine, s *agboxv1.CreateSpec) { s.RequiredServices[0] = service("db", "true") }, spec.ReasonHealthcheckTestInvalid, "required_services[0].healthcheck.test", `"true"`},
		{"CMD and nothing", func(_ *machine, s *agboxv1.CreateSpec) { s.RequiredServices[0] = service("db", "CMD") }, spec.ReasonHealthcheckTestInvalid, "required_services[0].healthcheck.test", "no command"},
		{"CMD-SHELL in words", func(_ *machine, s *agboxv1.CreateSpec) {
			s.RequiredServices[0] = service("db", "CMD-SHELL", "a", "b")
		}, spec.ReasonHealthcheckTestInvalid, "required_services[0].healthcheck.test", "join"},
		{"test with NUL", func(_ *machine, s *agboxv1.CreateSpec) { s.RequiredServices[0] = service("db", "CMD", "a\x00") }, spec.ReasonHealthcheckTestInvalid, "required_services[0].healthcheck.test", "NUL"},
		{"required with NONE", func(_ *machine, s *agboxv1.CreateSpec) { s.RequiredServices[0] = service("db", "NONE") }, spec.ReasonHealthcheckTestInvalid, "required_services[0].healthcheck.test", "optional services"},
		{"NONE and more", func(_ *machine, s *agboxv1.CreateSpec) { s.OptionalServices[0] = service("c", "NONE", "x") }, spec.ReasonHealthcheckTestInvalid, "optional_services[0].healthcheck.test", "nothing after"},
		{"negative interval", func(_ *machine, s *agboxv1.CreateSpec) {
			s.RequiredServices[0].Healthcheck = &check{Test: cmd, Interval: seconds(-2)}
		}, spec.ReasonDurationNegative, "required_services[0].healthcheck.interval", "-2s"},
		{"negative nanos", func(_ *machine, s *agboxv1.CreateSpec) {
			s.RequiredServices[0].Healthcheck = &check{Test: cmd, Timeout: &durationpb.Duration{Nanos: -1}}
		}, spec.ReasonDurationNegative, "required_services[0].healthcheck.timeout", "-1ns"},
		{"short start period", func(_ *machine, s *agboxv1.CreateSpec) {
			s.RequiredServices[0].Healthcheck = &check{Test: cmd, StartPeriod: seconds(0.0009)}
		}, spec.ReasonDurationTooShort, "required_services[0].healthcheck.start_period", "1ms"},
		{"short start interval", func(_ *machine, s *agboxv1.CreateSpec) {
			s.RequiredServices[0].Healthcheck = &check{Test: cmd, StartInterval: &durationpb.Duration{Nanos: 1}}
		}, spec.ReasonDurationTooShort, "required_services[0].healthcheck.start_interval", "1ns"},
		{"too many retries", func(_ *machine, s *agboxv1.CreateSpec) {
			s.RequiredServices[0].Healthcheck = &check{Test: cmd, Retries: 1 << 31}
		}, spec.ReasonRetriesTooLarge, "required_services[0].healthcheck.retries", "2147483648"},
	})
}

func checkRefusals(t *testing.T, tests []refusal) {
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			s := fullSpec(m)
			tt.edit(m, s)
			before := proto.CloneOf(s)
			_, err := m.resolve(s)
			wantRefusal(t, err, tt.reason, "create_spec."+tt.field, tt.part)
			if !proto.Equal(before, s) {
				t.Error("the request was changed")
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error shows a variable's value: %v", err)
			}
		})
	}
}

// fullSpec is valid and has one of everything that the refusals edit.
func fullSpec(m *machine) *agboxv1.CreateSpec {
	return &agboxv1.CreateSpec{
		Image:            "debian:12",
		Mounts:           []*agboxv1.MountSpec{mount(m.path("proj"), "/work")},
		Copies:           []*agboxv1.CopySpec{{Source: m.path("proj"), Target: "/copy"}},
		RequiredServices: []*agboxv1.ServiceSpec{service("db", "CMD", "true")},
		OptionalServices: []*agboxv1.ServiceSpec{service("cache")},
	}
}

func TestAccepted(t *testing.T) {
	tests := []struct {
		name string
		edit func(m *machine, s *agboxv1.CreateSpec)
	}{
		{"one of everything", func(*machine, *agboxv1.CreateSpec) {}},
		{"image alone", func(_ *machine, s *agboxv1.CreateSpec) { proto.Reset(s); s.Image = "x" }},
		{"image by digest", func(_ *machine, s *agboxv1.CreateSpec) { s.Image = "h:5000/a/b@sha256:00" }},
		{"a file as source", func(m *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = m.path("proj/main.go") }},
		{"a copied file", func(m *machine, s *agboxv1.CreateSpec) { s.Copies[0].Source = m.path("proj/main.go") }},
		{"one source twice", func(m *machine, s *agboxv1.CreateSpec) { s.Mounts = append(s.Mounts, mount(m.path("proj"), "/b")) }},
		{"a target within a target", func(m *machine, s *agboxv1.CreateSpec) {
			s.Mounts = append(s.Mounts, mount(m.path("proj"), "/work/b"))
		}},
		{"a copy into a writable mount", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Writable = true; s.Copies[0].Target = "/work/b" }},
		{"a sub-directory of home", func(m *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = m.dir("home/src") }},
		{"a name that only begins like our data", func(m *machine, s *agboxv1.CreateSpec) {
			s.Mounts[0].Source = m.dir("home/.local/share/agents-sandbox-2")
		}},
		{"targets that only begin like reserved ones", func(_ *machine, s *agboxv1.CreateSpec) {
			s.Mounts[0].Target, s.Copies[0].Target = "/device", "/process"
		}},
		{"links inside a mount", func(m *machine, _ *agboxv1.CreateSpec) { m.link("proj/in", "main.go") }},
		{"a link out that is excluded", func(m *machine, s *agboxv1.CreateSpec) {
			m.link("proj/up", "..")
			s.Copies[0].ExcludePatterns = []string{"up"}
		}},
		{"our data, excluded from a copy", func(m *machine, s *agboxv1.CreateSpec) {
			m.dir("home/.local/share/agents-sandbox")
			s.Copies[0].Source, s.Copies[0].ExcludePatterns = m.path("home"), []string{".local"}
		}},
		{"every healthcheck form", func(_ *machine, s *agboxv1.CreateSpec) {
			s.RequiredServices = append(s.RequiredServices, service("sh", "CMD-SHELL", "true || false"))
			s.OptionalServices = append(s.OptionalServices, service("none", "NONE"))
		}},
		{"healthcheck times", func(_ *machine, s *agboxv1.CreateSpec) {
			s.RequiredServices[0].Healthcheck = &agboxv1.HealthcheckConfig{
				Test: []string{"CMD", "true"}, Interval: durationpb.New(0), Timeout: durationpb.New(time.Millisecond),
				StartPeriod: durationpb.New(time.Hour), Retries: 1<<31 - 1,
			}
		}},
		{"service names", func(_ *machine, s *agboxv1.CreateSpec) {
			s.OptionalServices = append(s.OptionalServices, service("9.a_b-C"), service(strings.Repeat("a", 63)))
		}},
		{"post start", func(_ *machine, s *agboxv1.CreateSpec) {
			s.RequiredServices[0].PostStartOnPrimary = []string{"make seed"}
		}},
		{"odd but legal maps", func(_ *machine, s *agboxv1.CreateSpec) {
			s.Envs = map[string]string{"a.b-c": "", "HOST_UID": "7"}
			s.Labels = map[string]string{"a/b": ""}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			s := fullSpec(m)
			tt.edit(m, s)
			got, err := m.resolve(s)
			if err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got.Spec, s) {
				t.Errorf("spec\n%v\nwant\n%v", got.Spec, s)
			}
		})
	}
}

func TestPathsAreCleaned(t *testing.T) {
	m := newMachine(t)
	s := fullSpec(m)
	s.Mounts[0] = &agboxv1.MountSpec{Source: m.root + "//proj/../proj/", Target: "/work//a/.", Writable: true}
	s.Copies[0].Source, s.Copies[0].Target = m.root+"/./proj", "/copy/"
	got, err := m.resolve(s)
	if err != nil {
		t.Fatal(err)
	}
	want := []spec.Mount{{Source: m.path("proj"), Target: "/work/a", Writable: true}}
	if !slices.Equal(got.Mounts, want) {
		t.Errorf("mounts %v, want %v", got.Mounts, want)
	}
	if x := got.Spec.Mounts[0]; x.Source != want[0].Source || x.Target != want[0].Target {
		t.Errorf("mount in spec %v, want %v", x, want[0])
	}
	if x := got.Spec.Copies[0]; x.Source != m.path("proj") || x.Target != "/copy" {
		t.Errorf("copy in spec %v", x)
	}
}

func TestIdleTTL(t *testing.T) {
	m := newMachine(t)
	for _, tt := range []struct {
		name string
		ttl  *durationpb.Duration
		want time.Duration
	}{
		{"unset is the default", nil, 30 * time.Minute},
		{"0 is never", durationpb.New(0), 0},
		{"set", durationpb.New(time.Second), time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := m.resolve(&agboxv1.CreateSpec{Image: "x", IdleTtl: tt.ttl})
			if err != nil {
				t.Fatal(err)
			}
			if got.IdleTTL != tt.want || (got.Spec.IdleTtl == nil) != (tt.ttl == nil) {
				t.Errorf("idle TTL %v (spec %v), want %v", got.IdleTTL, got.Spec.IdleTtl, tt.want)
			}
		})
	}
}

func TestTools(t *testing.T) {
	m := newMachine(t)
	for _, dir := range []string{".claude", ".codex", ".agents", ".config/gh", ".cache/uv", ".local/share/uv", ".npm", ".cache/agents-sandbox-apt"} {
		m.dir("home/" + dir)
	}
	m.file("dotfiles/claude.json")
	m.link("home/.claude.json", "../dotfiles/claude.json")
	m.env["SSH_AUTH_SOCK"] = m.socket("agent/sock")
	s := &agboxv1.CreateSpec{Image: "x", BuiltinTools: []string{"claude", "codex", "git", "uv", "npm", "apt"}}
	got, err := m.resolve(s)
	if err != nil {
		t.Fatal(err)
	}
	want := []spec.Mount{
		{m.path("home/.claude"), "/home/agbox/.claude", false, true, "claude"},
		{m.path("dotfiles/claude.json"), "/home/agbox/.claude.json", false, true, "claude"},
		{m.path("home/.codex"), "/home/agbox/.codex", false, true, "codex"},
		{m.path("home/.agents"), "/home/agbox/.agents", false, true, "codex"},
		{m.path("agent/sock"), "/ssh-agent", false, false, "git"},
		{m.path("home/.config/gh"), "/home/agbox/.config/gh", false, false, "git"},
		{m.path("home/.cache/uv"), "/home/agbox/.cache/uv", false, true, "uv"},
		{m.path("home/.local/share/uv"), "/home/agbox/.local/share/uv", false, true, "uv"},
		{m.path("home/.npm"), "/home/agbox/.npm", false, true, "npm"},
		{m.path("home/.cache/agents-sandbox-apt"), "/var/cache/apt/archives", false, true, "apt"},
	}
	if !slices.Equal(got.Mounts, want) {
		t.Errorf("mounts\n%v\nwant\n%v", got.Mounts, want)
	}
	if want := map[string]string{"SSH_AUTH_SOCK": "/ssh-agent"}; !maps.Equal(got.Envs, want) || len(got.Skipped) != 0 {
		t.Errorf("envs %v, skipped %v", got.Envs, got.Skipped)
	}

	for i := range want {
		want[i].Writable, want[i].CopyOnWrite = want[i].CopyOnWrite, false
	}
	s.BuiltinTools = []string{"claude:rw", "codex:rw", "git", "uv:rw", "npm:rw", "apt:rw"}
	if got, err = m.resolve(s); err != nil || !slices.Equal(got.Mounts, want) {
		t.Errorf("written through: mounts\n%v\nwant\n%v, %v", got.Mounts, want, err)
	}

	s.Envs = map[string]string{"SSH_AUTH_SOCK": "/mine"}
	if got, err = m.resolve(s); err != nil || len(got.Envs) != 0 {
		t.Errorf("envs %v, error %v: the spec's own variable must win", got.Envs, err)
	}
}

func TestOptionalToolsAreSkipped(t *testing.T) {
	m := newMachine(t)
	m.fifo("home/.npm")
	for name, socket := range map[string]string{"unset": "", "relative": "agent", "missing": m.path("none"), "no socket": m.path("proj")} {
		m.env["SSH_AUTH_SOCK"] = socket
		got, err := m.resolve(&agboxv1.CreateSpec{Image: "x", BuiltinTools: []string{"git", "uv", "npm", "apt"}})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Mounts) != 0 || len(got.Envs) != 0 {
			t.Errorf("%s: mounts %v, envs %v", name, got.Mounts, got.Envs)
		}
		if len(got.Skipped) != 6 || !strings.HasPrefix(got.Skipped[0], "builtin tool git: not mounting /ssh-agent: ") ||
			!strings.Contains(got.Skipped[4], "is no file or directory") || !strings.Contains(got.Skipped[5], "missing on this host") {
			t.Errorf("%s: skipped %q", name, got.Skipped)
		}
	}
}
