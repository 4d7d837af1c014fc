package spec_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

const wholeYAML = `
image: coding:latest   # a comment
mounts:
  - source: /host/data
    target: /data
    writable: true
  - {source: /a, target: /b}
copies:
  - source: /p
    target: /workspace
    exclude_patterns: [.venv, "*.pyc"]
builtin_tools: [claude, git]
required_services:
  zeta:
    image: postgres:16
    envs: {POSTGRES_DB: app}
    healthcheck:
      test: [CMD-SHELL, pg_isready -U postgres]
      interval: 5s
      timeout: 1m30s
      retries: 12
      start_period: 20s
      start_interval: 500ms
    post_start_on_primary:
      - "psql -c 'CREATE EXTENSION vector'"
  alpha:
    image: redis
    healthcheck: {test: [CMD, redis-cli, ping]}
optional_services:
  cache: {image: memcached}
labels: {team: a}
envs:
  APP_ENV: production
  PORT: 5432
  HEX: 0x1F
  VERSION: 1.10
  DEBUG: true
  YES: yes
  EMPTY: ""
  TEXT: |
    two
    lines
idle_ttl: 1h
`

const wholeSpec = `
image: "coding:latest"
mounts {source: "/host/data" target: "/data" writable: true}
mounts {source: "/a" target: "/b"}
copies {source: "/p" target: "/workspace" exclude_patterns: ".venv" exclude_patterns: "*.pyc"}
builtin_tools: "claude" builtin_tools: "git"
required_services {
  name: "zeta" image: "postgres:16" envs {key: "POSTGRES_DB" value: "app"}
  healthcheck {
    test: "CMD-SHELL" test: "pg_isready -U postgres"
    interval {seconds: 5} timeout {seconds: 90} retries: 12 start_period {seconds: 20} start_interval {nanos: 500000000}
  }
  post_start_on_primary: "psql -c 'CREATE EXTENSION vector'"
}
required_services {name: "alpha" image: "redis" healthcheck {test: "CMD" test: "redis-cli" test: "ping"}}
optional_services {name: "cache" image: "memcached"}
labels {key: "team" value: "a"}
envs {key: "APP_ENV" value: "production"}
envs {key: "PORT" value: "5432"}
envs {key: "HEX" value: "0x1F"}
envs {key: "VERSION" value: "1.10"}
envs {key: "DEBUG" value: "true"}
envs {key: "YES" value: "yes"}
envs {key: "EMPTY" value: ""}
envs {key: "TEXT" value: "two\nlines\n"}
idle_ttl {seconds: 3600}
`

func TestYAML(t *testing.T) {
	tests := []struct{ name, yaml, want string }{
		{"everything", wholeYAML, wholeSpec},
		{"nothing", "", ""},
		{"a comment", "# nothing\n", ""},
		{"an empty document", "---\n", ""},
		{"null", "null", ""},
		{"keys without values", "image: x\nmounts:\nenvs:\nidle_ttl:\n", `image: "x"`},
		{"one marked document", "---\nimage: x\n...\n", `image: "x"`},
		{"JSON", `{"image": "x", "labels": {"1": "a"}}`, `image: "x" labels {key: "1" value: "a"}`},
		{"zero duration", "idle_ttl: 0", `idle_ttl {}`},
		{"quoted zero duration", `idle_ttl: "0"`, `idle_ttl {}`},
		{"number as image", "image: 3.10", `image: "3.10"`},
		{"aliases", `
required_services:
  a: {image: &i pg, healthcheck: &h {test: &t [CMD, up], retries: 3}}
  b: {image: *i, healthcheck: *h}
  c: {image: *i, healthcheck: {test: *t}}`, `
required_services {name: "a" image: "pg" healthcheck {test: "CMD" test: "up" retries: 3}}
required_services {name: "b" image: "pg" healthcheck {test: "CMD" test: "up" retries: 3}}
required_services {name: "c" image: "pg" healthcheck {test: "CMD" test: "up"}}`},
		{"the primary", `
command: [serve, --all, "8080"]
user: 1000:1000
working_dir: /srv
ports:
  - {container_port: 80, host_port: 8080, host_ip: 0.0.0.0, protocol: udp}
  - 8080
  - 9090:90
  - 127.0.0.1:5353:53/UDP
  - "[::1]::7"
  - 70-71:30-31
cpu_limit: 1.5
memory_limit: 1.5g
pids_limit: 100
disk_limit: 10 GiB
gpus: 2
shm_size: 67108864
tmpfs: [{target: /tmp, size: 64MB}, {target: /var/tmp, size: "4096"}]
read_only_root: true
runtime: runsc
pool: never
pull_policy: always
network:
  mode: allow
  private: true
  allow: [{cidr: 192.0.2.0/24, ports: [80, 443], protocol: tcp}]
hostname: box
extra_hosts: {db: 192.0.2.7}
cap_add: [IPC_LOCK]
allow_new_privileges: true
on_command_end: keep
optional_services: {s: {image: x, cpu_limit: 2, memory_limit: 512m, command: [a], tmpfs: [{target: /t}]}}`, `
command: "serve" command: "--all" command: "8080" user: "1000:1000" working_dir: "/srv"
ports {container_port: 80 host_port: 8080 host_ip: "0.0.0.0" protocol: "udp"}
ports {container_port: 8080 protocol: "tcp"} ports {container_port: 90 host_port: 9090 protocol: "tcp"}
ports {container_port: 53 host_port: 5353 host_ip: "127.0.0.1" protocol: "udp"}
ports {container_port: 7 host_ip: "::1" protocol: "tcp"}
ports {container_port: 30 host_port: 70 protocol: "tcp"} ports {container_port: 31 host_port: 71 protocol: "tcp"}
cpu_limit: 1.5 memory_limit: 1610612736 pids_limit: 100 disk_limit: 10737418240 gpus: "2" shm_size: 67108864
tmpfs {target: "/tmp" size: 67108864} tmpfs {target: "/var/tmp" size: 4096}
read_only_root: true pull_policy: "always"
network {mode: "allow" allow {cidr: "192.0.2.0/24" ports: 80 ports: 443 protocol: "tcp"} private: true}
hostname: "box" extra_hosts {key: "db" value: "192.0.2.7"} cap_add: "IPC_LOCK" allow_new_privileges: true on_command_end: "keep" runtime: "runsc" pool: "never"
optional_services {name: "s" image: "x" cpu_limit: 2 memory_limit: 536870912 command: "a" tmpfs {target: "/t"}}`},
		{"ports by alias", "ports: [&p 22:22, &q {container_port: 1}, *q]\nhostname: *p", `hostname: "22:22"
ports {container_port: 22 host_port: 22 protocol: "tcp"} ports {container_port: 1} ports {container_port: 1}`},
		{"what Resolve refuses", "memory_limit: -1\npids_limit: -2\ncpu_limit: -0.5", "memory_limit: -1 pids_limit: -2 cpu_limit: -0.5"},
		{"alias to a service", "optional_services:\n  a: &a {image: x}\n  b: *a\n", `optional_services {name: "a" image: "x"} optional_services {name: "b" image: "x"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := spec.ParseYAML([]byte(tt.yaml))
			if err != nil {
				t.Fatal(err)
			}
			want := &agboxv1.CreateSpec{}
			if err := prototext.Unmarshal([]byte(tt.want), want); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got, want) {
				t.Errorf("got\n%v\nwant\n%v", prototext.Format(got), prototext.Format(want))
			}
		})
	}
}

func TestYAMLRefusals(t *testing.T) {
	tests := []struct {
		name, yaml         string
		reason, line, part string
	}{
		{"unknown key", "image: x\nimages: y\n", spec.ReasonYAMLUnknownKey, "2", `unknown key "images" in the document; the keys are image, mounts`},
		{"unknown key in a mount", "mounts:\n  - source: /a\n    taget: /b\n", spec.ReasonYAMLUnknownKey, "3", `"taget" in mounts[0]`},
		{"unknown key in a service", "required_services:\n  db:\n    ports: []\n", spec.ReasonYAMLUnknownKey, "3", `"ports" in required_services.db`},
		{"unknown key in a healthcheck", "optional_services: {db: {healthcheck: {tries: 1}}}", spec.ReasonYAMLUnknownKey, "1", "test, interval, timeout"},
		{"name in a service", "required_services:\n  db:\n    name: x\n", spec.ReasonYAMLUnknownKey, "3", `"name"`},
		{"key by its JSON name", "builtinTools: [git]", spec.ReasonYAMLUnknownKey, "1", "builtin_tools"},
		{"merge key", "optional_services:\n  a: &a {image: x}\n  b:\n    <<: *a\n", spec.ReasonYAMLUnknownKey, "4", "merge keys"},
		{"duplicate key", "image: x\nenvs: {}\nimage: y\n", spec.ReasonYAMLDuplicateKey, "3", "image"},
		{"duplicate key in another spelling", "image: x\n\"image\": y\n", spec.ReasonYAMLDuplicateKey, "2", "image"},
		{"duplicate service", "required_services:\n  a: {}\n  a: {}\n", spec.ReasonYAMLDuplicateKey, "3", "a"},
		{"duplicate number key", "labels: {1: a, \"1\": b}", spec.ReasonYAMLDuplicateKey, "1", "twice"},
		{"two documents", "image: x\n---\nimage: y\n", spec.ReasonYAMLSyntax, "", "second document"},
		{"open bracket", "builtin_tools: [git\n", spec.ReasonYAMLSyntax, "1", "correct the YAML"},
		{"tab", "mounts:\n\t- a\n", spec.ReasonYAMLSyntax, "2", "correct the YAML"},
		{"not UTF-8", "image: \xff", spec.ReasonYAMLSyntax, "", "UTF-8"},
		{"a list as document", "- image: x", spec.ReasonYAMLValue, "1", "must be a map"},
		{"a word as document", "image", spec.ReasonYAMLValue, "1", "must be a map"},
		{"map as string", "image: {a: b}", spec.ReasonYAMLValue, "1", "image must be a string"},
		{"null as variable", "envs:\n  A:\n", spec.ReasonYAMLValue, "2", `envs.A must be a string; write ""`},
		{"string as list", "builtin_tools: git", spec.ReasonYAMLValue, "1", "builtin_tools must be a list"},
		{"list as services", "required_services:\n  - name: db\n", spec.ReasonYAMLValue, "2", "required_services must be a map"},
		{"list as envs", "envs: [A=b]", spec.ReasonYAMLValue, "1", "envs must be a map"},
		{"word as bool", "mounts: [{writable: yes}]", spec.ReasonYAMLValue, "1", "writable must be true or false"},
		{"number as duration", "idle_ttl: 30", spec.ReasonYAMLValue, "1", `like "90s"`},
		{"days as duration", "idle_ttl: 1d", spec.ReasonYAMLValue, "1", "idle_ttl must be a duration"},
		{"negative retries", "optional_services: {a: {healthcheck: {retries: -1}}}", spec.ReasonYAMLValue, "1", "whole number"},
		{"quoted retries", "optional_services: {a: {healthcheck: {retries: '1'}}}", spec.ReasonYAMLValue, "1", "whole number"},
		{"large retries", "optional_services: {a: {healthcheck: {retries: 4294967296}}}", spec.ReasonYAMLValue, "1", "4294967295"},
		{"unknown key in a port", "ports:\n  - 80\n  - container: 80\n", spec.ReasonYAMLUnknownKey, "3", `"container" in ports[1]; the keys are container_port, host_port`},
		{"unknown key in a tmpfs", "tmpfs:\n  - {path: /t}\n", spec.ReasonYAMLUnknownKey, "2", `"path" in tmpfs[0]`},
		{"unknown key in the network", "network:\n  deny: []\n", spec.ReasonYAMLUnknownKey, "2", "the keys are mode, allow"},
		{"unknown key in a destination", "network: {allow: [{ip: x}]}", spec.ReasonYAMLUnknownKey, "1", `"ip" in allow[0]`},
		{"word as port", "ports: [http]", spec.ReasonYAMLValue, "1", "ports[0]: invalid containerPort: http; write it like"},
		{"host ports for one port", "ports:\n- 80-90:80\n", spec.ReasonYAMLValue, "2", "range of host ports"},
		{"list as port", "ports: [[80]]", spec.ReasonYAMLValue, "1", "ports[0] must be a map"},
		{"number as ports", "ports: 80", spec.ReasonYAMLValue, "1", "ports must be a list"},
		{"too many ports", "ports:\n- 1-1000\n- 1001\n", spec.ReasonYAMLTooLarge, "3", "more than 1000 ports"},
		{"word as CPUs", "cpu_limit: two", spec.ReasonYAMLValue, "1", "cpu_limit must be a number such as 2 or 0.5"},
		{"quoted CPUs", "cpu_limit: '2'", spec.ReasonYAMLValue, "1", "must be a number"},
		{"no number as CPUs", "cpu_limit: .nan", spec.ReasonYAMLValue, "1", "must be a number"},
		{"endless CPUs", "cpu_limit: 1e999", spec.ReasonYAMLValue, "1", "must be a number"},
		{"size as pids", "pids_limit: 1k", spec.ReasonYAMLValue, "1", "pids_limit must be a whole number"},
		{"size with an unknown unit", "memory_limit: 1x", spec.ReasonYAMLValue, "1", `memory_limit must be bytes, as a whole number or like "512m"`},
		{"negative size", "disk_limit: -1g", spec.ReasonYAMLValue, "1", "must be bytes"},
		{"fraction of a byte", "shm_size: 1.5", spec.ReasonYAMLValue, "1", "must be bytes"},
		{"size that does not fit", "tmpfs: [{size: 8388608t}]", spec.ReasonYAMLValue, "1", "size must be bytes"},
		{"number that does not fit", "memory_limit: 9223372036854775808", spec.ReasonYAMLValue, "1", "must be bytes"},
		{"word as port number", "network: {allow: [{ports: [http]}]}", spec.ReasonYAMLValue, "1", "ports[0] must be a whole number from 0"},
		{"explicit key", "envs:\n  ? a\n  : c\n", spec.ReasonYAMLValue, "2", "plain string"},
		{"tag", "image: !!binary eA==", spec.ReasonYAMLValue, "1", "tags"},
		{"unknown alias", "image: *a", spec.ReasonYAMLValue, "1", "no anchor &a"},
		{"alias into itself", "optional_services: {a: &a {healthcheck: *a}}", spec.ReasonYAMLValue, "1", "no anchor &a"},
		{"anchor of a tag", "image: &a !!str x", spec.ReasonYAMLValue, "1", "no value of its own"},
		{"too large", strings.Repeat("#", 1<<20+1), spec.ReasonYAMLTooLarge, "", "1048576"},
		{"too many values", "builtin_tools: [" + strings.Repeat("a,", 10_001) + "]", spec.ReasonYAMLTooLarge, "", "words and signs"},
		{"flow nesting", strings.Repeat("[", 1000), spec.ReasonYAMLTooLarge, "1", "nesting"},
		{"flow nesting over lines", strings.Repeat("{a:\n", 1000), spec.ReasonYAMLTooLarge, "17", "nesting"},
		{"block nesting", strings.Repeat("- ", 1000), spec.ReasonYAMLTooLarge, "1", "nesting"},
		{"anchors on anchors", strings.Repeat("&a ", 1000), spec.ReasonYAMLTooLarge, "1", "nesting"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := spec.ParseYAML([]byte(tt.yaml))
			var refused *spec.Error
			if !errors.As(err, &refused) || got != nil {
				t.Fatalf("got %v, error %v", got, err)
			}
			wantRefusal(t, err, tt.reason, "config_yaml", tt.part)
			if tt.line != "" && (refused.Metadata["line"] != tt.line || !strings.HasPrefix(refused.Message, "line "+tt.line+",")) {
				t.Errorf("line %q in %q, want %s", refused.Metadata["line"], refused.Message, tt.line)
			}
		})
	}
}

// Nine aliases to a list, in nine services that are aliases to one another: 100 KB that mean millions of values.
func TestYAMLAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("optional_services:\n  s: &s\n    image: x\n    post_start_on_primary: &l [" + strings.Repeat("a,", 2_000) + "]\n")
	for i := range 500 {
		b.WriteString("  s" + strings.Repeat("x", i) + "y: *s\n")
	}
	_, err := spec.ParseYAML([]byte(b.String()))
	wantRefusal(t, err, spec.ReasonYAMLTooLarge, "config_yaml", "aliases expand")
}

// Run it with -fuzzminimizetime 10x: the default minimises each new input for a minute, and does little else.
func FuzzParseYAML(f *testing.F) {
	f.Add([]byte(wholeYAML))
	f.Fuzz(func(t *testing.T, document []byte) {
		got, err := spec.ParseYAML(document)
		if err != nil {
			var refused *spec.Error
			if !errors.As(err, &refused) || refused.Field != "config_yaml" || refused.Reason == "" || refused.Message == "" {
				t.Fatalf("error %#v", err)
			}
			return
		}
		if _, err := proto.Marshal(got); err != nil {
			t.Fatal(err)
		}
	})
}
