package spec_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

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
