package refusals_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/docker/docker/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

// badSpec is a spec in prototext, laid over one that has an image, and what a person is told of it: field is below
// create_spec. A $name in text or words is one of the paths that TestBadSpecs makes.
type badSpec struct{ name, text, reason, field, words string }

var badSpecs = []badSpec{
	{"image with blank", `image: "a b"`, "IMAGE_INVALID", "image", `"a b" is not an image reference; write it as name:tag`},
	{"nameless variable", `envs {key: "" value: "x"}`, "ENV_INVALID", "envs", "a variable has an empty name; name it"},
	{"variable with =", `envs {key: "A=B" value: ""}`, "ENV_INVALID", `envs["A=B"]`, `"A=B" is not a variable name; remove '='`},
	{"variable with NUL", `envs {key: "A" value: "a\x00b"}`, "ENV_INVALID", `envs["A"]`, `the value of "A" contains a NUL byte; remove it`},
	{"nameless label", `labels {key: "" value: "x"}`, "LABEL_INVALID", "labels", `a label has an empty key (its value is "x"); name it`},
	{"label with NUL", `labels {key: "a" value: "\x00"}`, "LABEL_INVALID", `labels["a"]`, `the label "a" contains a NUL byte; remove it`},
	{"negative duration", `idle_ttl {seconds: -1}`, "DURATION_NEGATIVE", "idle_ttl", "-1s is negative; use 0 or more"},
	{"malformed duration", `idle_ttl {nanos: 2000000000}`, "DURATION_INVALID", "idle_ttl", "0 s and 2000000000 ns are no valid duration; keep ns below 1e9"},

	{"relative source", `mounts {source: "/usr" target: "/y"} mounts {source: "here" target: "/x"}`, "SOURCE_NOT_ABSOLUTE", "mounts[1].source", `"here" is not an absolute path; write the path on the daemon's host from / on`},
	{"missing source", `mounts {source: "$dir/none" target: "/x"}`, "SOURCE_NOT_FOUND", "mounts[0].source", `"$dir/none" does not exist on the daemon's host; create it first`},
	{"source with too long a name", `mounts {source: "/$long" target: "/x"}`, "SOURCE_UNREADABLE", "mounts[0].source", `xxx"… cannot be looked at by the daemon: file name too long; give it access or choose another path`},
	{"link", `mounts {source: "$dir/links/link" target: "/x"}`, "SOURCE_SYMLINK", "mounts[0].source", `"$dir/links/link" is or goes through a symbolic link; if that is meant, write where it leads: "/usr"`},
	{"through a link", `mounts {source: "$dir/links/link/bin" target: "/x"}`, "SOURCE_SYMLINK", "mounts[0].source", `write where it leads: "/usr/bin"`},
	{"pipe", `mounts {source: "$dir/pipes/pipe" target: "/x"}`, "SOURCE_NOT_FILE_OR_DIRECTORY", "mounts[0].source", `"$dir/pipes/pipe" is a named pipe; name a file or a directory`},
	{"device", `mounts {source: "/dev/null" target: "/x"}`, "SOURCE_PROTECTED", "mounts[0].source", `"/dev/null" lies in the kernel's file system (/dev), which no sandbox may have; choose a directory apart from it`},
	{"the daemon's data", `mounts {source: "$data" target: "/x"}`, "SOURCE_PROTECTED", "mounts[0].source", `"$data" is agboxd's own data ($data), which no sandbox may have; choose`},
	{"the host's root", `mounts {source: "/" target: "/x"}`, "SOURCE_PROTECTED", "mounts[0].source", `"/" contains the kernel's file system`},

	{"mode of a mount", `mounts {source: "/usr" target: "/x" mode: "wr"}`, "MOUNT_MODE_INVALID", "mounts[0].mode", `"wr" is none of ro, rw, cow; use one of them, or leave it out`},
	{"mode against writable", `mounts {source: "/usr" target: "/x" mode: "cow" writable: true}`, "MOUNT_MODE_INVALID", "mounts[0].mode", `"cow" contradicts writable: true; leave out one`},
	{"mode of a tool", `builtin_tools: "npm:ro"`, "BUILTIN_TOOL_MODE_INVALID", "builtin_tools[0]", `write npm for a layer of the sandbox's own, or npm:rw to write to the host's files`},

	{"relative target", `mounts {source: "/usr" target: "x"}`, "TARGET_NOT_ABSOLUTE", "mounts[0].target", `"x" is not absolute; write the path in the sandbox from / on`},
	{"target with ..", `mounts {source: "/usr" target: "/x/../y"}`, "TARGET_TRAVERSAL", "mounts[0].target", `"/x/../y" contains ".."; write the path that is meant`},
	{"target of our own", `mounts {source: "/usr" target: "/.agbox/x"}`, "TARGET_RESERVED", "mounts[0].target", `"/.agbox/x" lies in /.agbox, which the sandbox needs for itself; choose another path`},
	{"root as target", `mounts {source: "/usr" target: "/"}`, "TARGET_RESERVED", "mounts[0].target", "/ is the sandbox's root; choose a directory below it"},
	{"target twice", `mounts {source: "/usr" target: "/x"} mounts {source: "/etc" target: "/x/"}`, "TARGET_REPEATED", "mounts[1].target", `"/x" is used by create_spec.mounts[0].target already; give each its own`},

	{"relative copy source", `copies {source: "here" target: "/x"}`, "SOURCE_NOT_ABSOLUTE", "copies[0].source", `"here" is not an absolute path; write`},
	{"relative copy target", `copies {source: "/usr/bin" target: "x"}`, "TARGET_NOT_ABSOLUTE", "copies[0].target", `"x" is not absolute; write`},
	{"copy to a mount", `mounts {source: "/usr" target: "/x"} copies {source: "/usr/bin" target: "/x"}`, "TARGET_REPEATED", "copies[0].target", `"/x" is used by create_spec.mounts[0].target already`},
	{"copy into a read-only mount", `mounts {source: "/usr" target: "/x"} copies {source: "$dir/file" target: "/x/y"}`, "COPY_TARGET_READ_ONLY", "copies[0].target", `"/x/y" lies in the read-only mount "/x"; make the mount writable or copy elsewhere`},
	{"copy of a pipe", `copies {source: "$dir/pipes/pipe" target: "/x"}`, "SOURCE_NOT_FILE_OR_DIRECTORY", "copies[0].source", "is a named pipe; name a file or a directory"},
	{"copy with a pipe", `copies {source: "$dir/pipes" target: "/x"}`, "COPY_ENTRY_KIND", "copies[0].source", `"$dir/pipes/pipe" is a named pipe and cannot be copied; exclude it`},
	{"copy with a way out", `copies {source: "$dir/links" target: "/x"}`, "COPY_LINK_ESCAPES", "copies[0].source", `the symbolic link "$dir/links/link" leads out of "$dir/links", to "/usr"; exclude it, or replace it by what it leads to`},
	{"copy of too much", `copies {source: "$dir/deep" target: "/x"}`, "COPY_TOO_LARGE", "copies[0].source", `lies more than 255 directories below "$dir/deep"; exclude it, or mount the source`},
	{"exclude pattern", `copies {source: "/usr/bin" target: "/x" exclude_patterns: "["}`, "EXCLUDE_PATTERN_INVALID", "copies[0].exclude_patterns[0]", `"[" is not a pattern; close its brackets`},
	{"copy below a tmpfs", `copies {source: "$dir/file" target: "/a/b"} tmpfs {target: "/a"}`, "COPY_TARGET_IN_TMPFS", "tmpfs[0].target", `"/a" is empty at each start and would hide the copy at "/a/b"; copy elsewhere`},

	{"unknown tool", `builtin_tools: "git" builtin_tools: "hammer"`, "BUILTIN_TOOL_UNKNOWN", "builtin_tools[1]", `there is no builtin tool "hammer"; choose from claude, codex, git, uv, npm, apt`},
	{"tool twice", `builtin_tools: "npm" builtin_tools: "npm"`, "BUILTIN_TOOL_REPEATED", "builtin_tools[1]", `"npm" is named twice; remove one`},
	{"missing tool", `builtin_tools: "claude"`, "BUILTIN_TOOL_SOURCE_MISSING", "builtin_tools[0]", `claude needs it: "$data/.claude" is missing on this host; install and start the tool on this host once, or leave it out`},

	{"command without program", `command: "" command: "x"`, "COMMAND_REQUIRED", "command", "the command begins with an empty word; the first word must be the program to run"},
	{"command with NUL", `command: "a" command: "b\x00"`, "COMMAND_INVALID", "command[1]", `"b\x00" contains a NUL byte; remove it`},
	{"user", `user: "a b"`, "USER_INVALID", "user", `"a b" is no user; write a name or a number up to 2147483647`},
	{"working directory", `working_dir: "src"`, "WORKING_DIR_INVALID", "working_dir", `"src" is not absolute; write the path in the sandbox from / on`},
	{"idle", `on_idle: "nap"`, "ON_IDLE_INVALID", "on_idle", `"nap" is none of stop, pause, delete; use one of them`},
	{"lease", `lease {on_end: "nap"}`, "LEASE_INVALID", "lease.on_end", `"nap" is none of delete, stop; use one of them`},
	{"restart policy", `restart_policy {mode: "always"}`, "RESTART_POLICY_INVALID", "restart_policy.mode", `"always" is none of never, on-failure; use one of them`},
	{"expiry", `on_expiry: "nap"`, "ON_EXPIRY_INVALID", "on_expiry", `"nap" is none of delete, stop, pause; use one of them`},
	{"wake", `wake: "dawn"`, "WAKE_INVALID", "wake", `"dawn" is not traffic; use that, or leave it out`},
	{"negative time", `max_duration {seconds: -1}`, "DURATION_NEGATIVE", "max_duration", "-1s is negative; use 0 or more"},
	{"end of a command", `command: "x" on_command_end: "restart"`, "ON_COMMAND_END_INVALID", "on_command_end", `"restart" is none of fail, keep; use one of them, or leave it out for fail`},
	{"end of no command", `on_command_end: "keep"`, "ON_COMMAND_END_INVALID", "on_command_end", "there is no command; give one or leave it out"},
	{"pool", `pool: "always"`, "POOL_INVALID", "pool", `"always" is not never; use that, or leave it out`},
	{"pull policy", `pull_policy: "Always"`, "PULL_POLICY_INVALID", "pull_policy", `"Always" is none of missing, always, never; use one of them, or leave it out for missing`},

	{"CPUs", `cpu_limit: -1`, "CPU_LIMIT_INVALID", "cpu_limit", "-1 CPUs cannot be a limit; use 0.01 to 8192, or 0 for no limit"},
	{"memory", `memory_limit: 1000`, "MEMORY_LIMIT_INVALID", "memory_limit", "1000 bytes are too few; use at least 16777216, or 0 for no limit"},
	{"processes", `pids_limit: 4194305`, "PIDS_LIMIT_INVALID", "pids_limit", "4194305 processes are more than 4194304; use fewer, or 0 for 4096"},
	{"disk", `disk_limit: 1000`, "DISK_LIMIT_INVALID", "disk_limit", "1000 bytes are too few; use at least 1048576, or 0 for no limit"},
	{"shared memory", `shm_size: -1`, "SHM_SIZE_INVALID", "shm_size", "-1 bytes are too few; use at least 1, or 0 for the engine's default"},
	{"tmpfs", `tmpfs {target: "/t" size: -1}`, "TMPFS_SIZE_INVALID", "tmpfs[0].size", "-1 bytes are negative; use a size, or 0"},
	{"GPUs", `gpus: "0"`, "GPUS_INVALID", "gpus", `"0" names no devices; write "all", a number from 1 on`},
	{"unknown capability", `cap_add: "NET"`, "CAPABILITY_UNKNOWN", "cap_add[0]", `there is no capability "NET"; write one of Linux's names`},
	{"capability twice", `cap_add: "IPC_LOCK" cap_add: "cap_ipc_lock"`, "CAPABILITY_REPEATED", "cap_add[1]", `"cap_ipc_lock" is named twice; remove one`},
	{"harmful capability", `cap_add: "SYS_ADMIN"`, "CAPABILITY_REFUSED", "cap_add[0]", `"SYS_ADMIN" would give the sandbox a hold on mounts and most of the host's kernel; leave it out, or have it listed under sandbox.allowed_capabilities`},

	{"network mode", `network {mode: "host"}`, "NETWORK_MODE_INVALID", "network.mode", `"host" is none of internet, none, allow; use one of them, or leave it out for internet`},
	{"destinations without mode", `network {allow {cidr: "192.0.2.1"}}`, "NETWORK_ALLOW_INVALID", "network.allow", `destinations are for mode "allow" and the mode is ""; change the mode or leave them out`},
	{"name as destination", `network {mode: "allow" allow {cidr: "example.org"}}`, "NETWORK_CIDR_INVALID", "network.allow[0].cidr", `"example.org" is no IPv4 address or range; write it like 192.0.2.0/24`},
	{"port 0 allowed", `network {mode: "allow" allow {cidr: "192.0.2.1" ports: 0}}`, "NETWORK_PORT_INVALID", "network.allow[0].ports[0]", "0 is no port; use 1 to 65535"},
	{"protocol without ports", `network {mode: "allow" allow {cidr: "192.0.2.1" protocol: "tcp"}}`, "NETWORK_PROTOCOL_INVALID", "network.allow[0].protocol", `"tcp" is given without ports; add ports, or leave it out`},
	{"port 0 published", `ports {host_port: 80}`, "PORT_INVALID", "ports[0].container_port", "0 is no port; use 1 to 65535"},
	{"host name for a port", `ports {container_port: 1 host_ip: "localhost"}`, "PORT_HOST_IP_INVALID", "ports[0].host_ip", `"localhost" is no IPv4 address; write one of the host's`},
	{"sctp", `ports {container_port: 1 protocol: "sctp"}`, "PORT_PROTOCOL_INVALID", "ports[0].protocol", `"sctp" cannot be published; use tcp or udp`},
	{"port twice", `ports {container_port: 1 host_port: 9} ports {container_port: 2 host_port: 9}`, "PORT_REPEATED", "ports[1]", "127.0.0.1:9/tcp is the place of create_spec.ports[0] already; choose another host_port or leave one out"},
	{"too many ports", strings.Repeat(`ports {container_port: 1}`, 1001), "PORTS_TOO_MANY", "ports", "1001 ports are more than 1000; publish fewer"},
	{"ports without network", `ports {container_port: 1} network {mode: "none"}`, "PORTS_WITHOUT_NETWORK", "ports", `ports cannot be published with network mode "none"; leave them out or change the mode`},
	{"host name", `hostname: "a_b"`, "HOSTNAME_INVALID", "hostname", `"a_b" is no host name; use letters, digits and '-'`},
	{"the host by a name", `extra_hosts {key: "a" value: "host-gateway"}`, "EXTRA_HOST_INVALID", `extra_hosts["a"]`, "host-gateway is the daemon's host, which no sandbox may reach; write the IP address of another machine"},
	{"name for a name", `extra_hosts {key: "a" value: "b"}`, "EXTRA_HOST_INVALID", `extra_hosts["a"]`, `"b" is no IP address; write one like 192.0.2.1`},

	{"nameless service", `required_services {image: "x" $check}`, "SERVICE_NAME_REQUIRED", "required_services[0].name", "the service has no name; name it"},
	{"service name", `optional_services {name: "a b" image: "x"}`, "SERVICE_NAME_INVALID", "optional_services[0].name", `"a b" cannot be a host name; use 1 to 63 letters, digits`},
	{"service twice", `required_services {name: "db" image: "x" $check} optional_services {name: "DB" image: "x"}`, "SERVICE_NAME_REPEATED", "optional_services[0].name", `"DB" is the name of create_spec.required_services[0] already (case does not count); choose another`},
	{"service without image", `required_services {name: "db" $check}`, "SERVICE_IMAGE_REQUIRED", "required_services[0].image", "no image is given; name one, for example"},
	{"service with a bad image", `optional_services {name: "db" image: "-x"}`, "IMAGE_INVALID", "optional_services[0].image", `"-x" is not an image reference; write it as name:tag`},
	{"limit of a service", `optional_services {name: "db" image: "x" memory_limit: 1}`, "MEMORY_LIMIT_INVALID", "optional_services[0].memory_limit", "1 bytes are too few; use at least 6291456"},
	{"required without healthcheck", `required_services {name: "db" image: "x"}`, "HEALTHCHECK_REQUIRED", "required_services[0].healthcheck", `the required service "db" has no healthcheck, so nobody could tell when it is ready; add one or make it optional`},
	{"hook without healthcheck", `optional_services {name: "db" image: "x" post_start_on_primary: "true"}`, "HEALTHCHECK_REQUIRED", "optional_services[0].healthcheck", `post_start_on_primary of "db" runs once the service is healthy, and it has no healthcheck; add one`},
	{"empty hook", `optional_services {name: "db" image: "x" $check post_start_on_primary: " "}`, "POST_START_INVALID", "optional_services[0].post_start_on_primary[0]", `" " is not a command; remove the entry or write a shell command`},
	{"empty test", `required_services {name: "db" image: "x" healthcheck {}}`, "HEALTHCHECK_TEST_INVALID", "required_services[0].healthcheck.test", `the test is empty; write ["CMD", program, argument…] or ["CMD-SHELL", command]`},
	{"test of a shell", `required_services {name: "db" image: "x" healthcheck {test: "true"}}`, "HEALTHCHECK_TEST_INVALID", "required_services[0].healthcheck.test", `the first word "true" is none of CMD, CMD-SHELL and NONE; write`},
	{"required NONE", `required_services {name: "db" image: "x" healthcheck {test: "NONE"}}`, "HEALTHCHECK_TEST_INVALID", "required_services[0].healthcheck.test", "NONE is for optional services, a required one must be seen to be ready; write"},
	{"negative interval", `optional_services {name: "db" image: "x" healthcheck {test: "CMD" test: "x" interval {nanos: -1}}}`, "DURATION_NEGATIVE", "optional_services[0].healthcheck.interval", "-1ns is negative; use 0 or more"},
	{"short timeout", `optional_services {name: "db" image: "x" healthcheck {test: "CMD" test: "x" timeout {nanos: 1}}}`, "DURATION_TOO_SHORT", "optional_services[0].healthcheck.timeout", "1ns is shorter than the engine can wait; use 0 for its default, or at least 1ms"},
	{"retries", `optional_services {name: "db" image: "x" healthcheck {test: "CMD" test: "x" retries: 2147483648}}`, "HEALTHCHECK_RETRIES_TOO_LARGE", "optional_services[0].healthcheck.retries", "2147483648 retries are more than 2147483647; use fewer"},
}

// TestBadSpecs: what the contract refuses, and what could not be run either, has a reason and a message for each kind.
func TestBadSpecs(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	dir := t.TempDir()
	for _, name := range []string{"links", "pipes", "deep" + strings.Repeat("/d", 300)} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr", filepath.Join(dir, "links", "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipes", "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	named := strings.NewReplacer("$dir", dir, "$data", d.Dir(), "$long", strings.Repeat("x", 300), "$check", `healthcheck {test: "CMD" test: "true"}`)
	specs := badSpecs
	if d.Engine.DaemonHost() == client.DefaultDockerHost {
		specs = append(specs, badSpec{"docker's socket", `mounts {source: "/var/run/docker.sock" target: "/x"}`,
			"SOURCE_PROTECTED", "mounts[0].source", "is the container engine's socket"})
	}
	const id = "bad-spec"
	for _, test := range specs {
		t.Run(test.name, func(t *testing.T) {
			spec := &agboxv1.CreateSpec{}
			if err := prototext.Unmarshal([]byte(named.Replace(test.text)), spec); err != nil {
				t.Fatal(err)
			}
			if spec.Image == "" {
				spec.Image = d.Image
			}
			_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: spec})
			servertest.Refused(t, err, codes.InvalidArgument, test.reason, "create_spec."+test.field, named.Replace(test.words))
		})
	}
	_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id})
	servertest.Refused(t, err, codes.InvalidArgument, "IMAGE_REQUIRED", "create_spec.image", "no image is given; name one, for example")
	for _, bad := range []string{"abc", "-abcd", "abcd-", "ab/cd", "ab cd", strings.Repeat("a", 201), "ab\x00cd"} {
		_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: bad, CreateSpec: &agboxv1.CreateSpec{Image: d.Image}})
		servertest.Refused(t, err, codes.InvalidArgument, "INVALID_SANDBOX_ID", "sandbox_id", fmt.Sprintf("%q", bad))
	}
	nothingCreated(t, d, id)
}

// TestBadDocuments: the same for config_yaml, with the line.
func TestBadDocuments(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	const id = "bad-document"
	for _, test := range []struct{ name, yaml, reason, field, words string }{
		{"unknown key", "image: x\nimagee: y\n", "CONFIG_YAML_UNKNOWN_KEY", "config_yaml", `line 2, column 1: unknown key "imagee" in the document; the keys are image, mounts, `},
		{"key twice", "image: x\nimage: y\n", "CONFIG_YAML_DUPLICATE_KEY", "config_yaml", `line 2, column 1: the key "image" is in the document twice; remove one`},
		{"open bracket", "image: [", "CONFIG_YAML_SYNTAX", "config_yaml", "; correct the YAML there"},
		{"two documents", "image: x\n---\nimage: y\n", "CONFIG_YAML_SYNTAX", "config_yaml", "a second document begins here; send one"},
		{"not UTF-8", "image: \xff", "CONFIG_YAML_SYNTAX", "config_yaml", "the document is not UTF-8; save it as UTF-8"},
		{"duration", "image: x\nidle_ttl: soon\n", "CONFIG_YAML_VALUE_INVALID", "config_yaml", `idle_ttl must be a duration; write it like "90s" or "1h30m", 0 for none`},
		{"size", "memory_limit: 1x\n", "CONFIG_YAML_VALUE_INVALID", "config_yaml", `memory_limit must be bytes, as a whole number or like "512m" or "1GiB"`},
		{"port", "ports: [http]\n", "CONFIG_YAML_VALUE_INVALID", "config_yaml", `ports[0]: invalid containerPort: http; write it like 8080, "8080:80"`},
		{"too deep", strings.Repeat("[", 20), "CONFIG_YAML_TOO_LARGE", "config_yaml", "the nesting is deeper than 16; a spec needs no more than 6"},
		{"too many ports", "ports: [1-1000, 1001]\n", "CONFIG_YAML_TOO_LARGE", "config_yaml", "ports[1] makes more than 1000 ports; publish fewer"},
		{"too long", strings.Repeat("#", 1<<20+1), "CONFIG_YAML_TOO_LARGE", "config_yaml", "1048577 bytes are more than 1048576; move large values into files and mount these"},
		{"negative duration", "image: x\nidle_ttl: -5m\n", "DURATION_NEGATIVE", "create_spec.idle_ttl", "-5m0s is negative; use 0 or more"},
		{"without image", "envs: {A: b}\n", "IMAGE_REQUIRED", "create_spec.image", "no image is given; name one"},
		{"service", "image: x\noptional_services: {a b: {image: x}}\n", "SERVICE_NAME_INVALID", "create_spec.optional_services[0].name", `"a b" cannot be a host name`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, ConfigYaml: []byte(test.yaml)})
			servertest.Refused(t, err, codes.InvalidArgument, test.reason, test.field, test.words)
		})
	}
	nothingCreated(t, d, id)
}

// nothingCreated fails the test when the daemon has a sandbox, or anything of one that was refused as id, whose id is
// then still free.
func nothingCreated(t *testing.T, d *servertest.Daemon, id string) {
	t.Helper()
	list, err := d.ListSandboxes(t.Context(), &agboxv1.ListSandboxesRequest{IncludeDeleted: true})
	if err != nil || len(list.Sandboxes) != 0 {
		t.Errorf("refused creates left %v, %v", list, err)
	}
	dockertest.Leftovers(t, d.Engine, id)
	for _, kind := range []string{"exec-logs", "exec-results", "operation-logs", "run"} {
		if _, err := os.Lstat(filepath.Join(d.Dir(), kind, id)); !os.IsNotExist(err) {
			t.Errorf("a refused create made a directory in %s: %v", kind, err)
		}
	}
	if _, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: d.Image, Lazy: true}}); err != nil {
		t.Errorf("the id of refused creates is not free: %v", err)
	}
}
