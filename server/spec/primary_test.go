package spec_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

// wrong is a refusal whose change is given as prototext, merged into a valid spec.
func wrong(name, text, reason, field, part string) refusal {
	return refusal{name, func(m *machine, s *agboxv1.CreateSpec) { m.add(s, text) }, reason, field, part}
}

func (m *machine) add(s *agboxv1.CreateSpec, text string) {
	m.t.Helper()
	more := &agboxv1.CreateSpec{}
	m.must(prototext.Unmarshal([]byte(text), more))
	proto.Merge(s, more)
}

// A primary needs more than a service: agbox-init is in it.
func TestLeastLimits(t *testing.T) {
	checkRefusals(t, []refusal{
		wrong("memory", `memory_limit: 16777215`, spec.ReasonMemoryLimitInvalid, "memory_limit", "use at least 16777216"),
		wrong("memory of a service", `required_services {name: "s" image: "x" memory_limit: 6291455}`,
			spec.ReasonMemoryLimitInvalid, "required_services[1].memory_limit", "use at least 6291456"),
		wrong("processes", `pids_limit: 47`, spec.ReasonPidsLimitInvalid, "pids_limit", "47 processes are too few; use at least 48"),
	})
}

// In a primary and in a service, the same mistakes are refused in the same way.
func TestContainerRefusals(t *testing.T) {
	mistakes := []struct{ name, text, reason, field, part string }{
		{"empty program", `command: "" command: "x"`, spec.ReasonCommandRequired, "command", "first word"},
		{"NUL in the command", `command: "a" command: "\x00"`, spec.ReasonCommandInvalid, "command[1]", "NUL"},
		{"user with blank", `user: "a b"`, spec.ReasonUserInvalid, "user", `"a b"`},
		{"group alone", `user: ":7"`, spec.ReasonUserInvalid, "user", `":7"`},
		{"empty group", `user: "a:"`, spec.ReasonUserInvalid, "user", `"a:"`},
		{"three parts", `user: "a:b:c"`, spec.ReasonUserInvalid, "user", "group after a ':'"},
		{"user like a flag", `user: "-1"`, spec.ReasonUserInvalid, "user", `"-1"`},
		{"uid too large", `user: "2147483648"`, spec.ReasonUserInvalid, "user", "2147483647"},
		{"gid too large", `user: "root:2147483648"`, spec.ReasonUserInvalid, "user", "2147483647"},
		{"pull policy", `pull_policy: "Always"`, spec.ReasonPullPolicyInvalid, "pull_policy", "missing, always, never"},
		{"negative CPUs", `cpu_limit: -1`, spec.ReasonCPULimitInvalid, "cpu_limit", "-1 CPUs"},
		{"few CPUs", `cpu_limit: 0.009`, spec.ReasonCPULimitInvalid, "cpu_limit", "0.01 to"},
		{"many CPUs", `cpu_limit: 8193`, spec.ReasonCPULimitInvalid, "cpu_limit", "8192"},
		{"no number of CPUs", `cpu_limit: nan`, spec.ReasonCPULimitInvalid, "cpu_limit", "NaN"},
		{"endless CPUs", `cpu_limit: inf`, spec.ReasonCPULimitInvalid, "cpu_limit", "+Inf"},
		{"little memory", `memory_limit: 6291455`, spec.ReasonMemoryLimitInvalid, "memory_limit", "use at least"},
		{"negative memory", `memory_limit: -1`, spec.ReasonMemoryLimitInvalid, "memory_limit", "-1 bytes"},
		{"negative pids", `pids_limit: -1`, spec.ReasonPidsLimitInvalid, "pids_limit", "0 for 4096"},
		{"many pids", `pids_limit: 4194305`, spec.ReasonPidsLimitInvalid, "pids_limit", "4194304"},
		{"small disk", `disk_limit: 1048575`, spec.ReasonDiskLimitInvalid, "disk_limit", "1048576"},
		{"negative shm", `shm_size: -1`, spec.ReasonShmSizeInvalid, "shm_size", "-1 bytes"},
		{"negative tmpfs", `tmpfs {target: "/t" size: -1}`, spec.ReasonTmpfsSizeInvalid, "tmpfs[0].size", "-1 bytes"},
		{"relative tmpfs", `tmpfs {target: "t"}`, spec.ReasonTargetNotAbsolute, "tmpfs[0].target", `"t"`},
		{"tmpfs with ..", `tmpfs {target: "/a/../b"}`, spec.ReasonTargetTraversal, "tmpfs[0].target", "/a/../b"},
		{"tmpfs at the root", `tmpfs {target: "/"}`, spec.ReasonTargetReserved, "tmpfs[0].target", "root"},
		{"tmpfs in /dev", `tmpfs {target: "/dev/shm"}`, spec.ReasonTargetReserved, "tmpfs[0].target", "/dev"},
		{"tmpfs twice", `tmpfs {target: "/t"} tmpfs {target: "/t/"}`, spec.ReasonTargetRepeated, "tmpfs[1].target", "tmpfs[0].target"},
		{"unknown capability", `cap_add: "NET"`, spec.ReasonCapabilityUnknown, "cap_add[0]", `"NET"`},
		{"empty capability", `cap_add: ""`, spec.ReasonCapabilityUnknown, "cap_add[0]", `""`},
		{"capability twice", `cap_add: "IPC_LOCK" cap_add: "cap_ipc_lock"`, spec.ReasonCapabilityRepeated, "cap_add[1]", "cap_ipc_lock"},
	}
	for _, name := range []string{
		"ALL", "AUDIT_CONTROL", "AUDIT_READ", "BLOCK_SUSPEND", "BPF", "CHECKPOINT_RESTORE", "DAC_READ_SEARCH", "LINUX_IMMUTABLE",
		"MAC_ADMIN", "MAC_OVERRIDE", "MKNOD", "NET_ADMIN", "PERFMON", "SYSLOG", "SYS_ADMIN", "SYS_BOOT", "SYS_MODULE", "SYS_NICE",
		"SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "WAKE_ALARM", "cap_sys_admin",
	} {
		mistakes = append(mistakes, struct{ name, text, reason, field, part string }{
			name, fmt.Sprintf("cap_add: %q", name), spec.ReasonCapabilityRefused, "cap_add[0]", "sandbox.allowed_capabilities"})
	}
	t.Run("primary", func(t *testing.T) {
		tests := []refusal{}
		for _, x := range mistakes {
			tests = append(tests, wrong(x.name, x.text, x.reason, x.field, x.part))
		}
		checkRefusals(t, tests)
	})
	t.Run("required service", func(t *testing.T) {
		tests := []refusal{}
		for _, x := range mistakes {
			text := `required_services {name: "more" image: "x" healthcheck {test: "CMD" test: "true"} ` + x.text + `}`
			tests = append(tests, wrong(x.name, text, x.reason, "required_services[1]."+x.field, x.part))
		}
		checkRefusals(t, tests)
	})
	t.Run("optional service", func(t *testing.T) {
		x := mistakes[0]
		checkRefusals(t, []refusal{wrong(x.name, `optional_services {name: "more" image: "x" `+x.text+`}`, x.reason, "optional_services[1]."+x.field, x.part)})
	})
}

func TestPrimaryRefusals(t *testing.T) {
	checkRefusals(t, []refusal{
		wrong("tmpfs on a mount", `tmpfs {target: "/work/"}`, spec.ReasonTargetRepeated, "tmpfs[0].target", "create_spec.mounts[0].target"),
		wrong("tmpfs on a copy", `tmpfs {target: "/copy"}`, spec.ReasonTargetRepeated, "tmpfs[0].target", "create_spec.copies[0].target"),
		wrong("tmpfs over a copy", `copies {source: "/etc/hostname" target: "/a/b/c"} tmpfs {target: "/a"}`, spec.ReasonCopyTargetInTmpfs, "tmpfs[0].target", `"/a/b/c"`),

		wrong("relative working_dir", `working_dir: "src"`, spec.ReasonWorkingDirInvalid, "working_dir", "from / on"),
		wrong("working_dir with ..", `working_dir: "/a/.."`, spec.ReasonWorkingDirInvalid, "working_dir", `".."`),
		wrong("working_dir with NUL", `working_dir: "/a\x00"`, spec.ReasonWorkingDirInvalid, "working_dir", "NUL"),
		wrong("working_dir in /proc", `working_dir: "/proc/self"`, spec.ReasonWorkingDirInvalid, "working_dir", "/proc"),
		wrong("on_idle", `on_idle: "nap"`, spec.ReasonOnIdleInvalid, "on_idle", "stop, pause, delete"),
		wrong("wake", `wake: "dawn"`, spec.ReasonWakeInvalid, "wake", "traffic"),
		wrong("on_expiry", `on_expiry: "nap"`, spec.ReasonOnExpiryInvalid, "on_expiry", "delete, stop"),
		wrong("lease end", `lease {on_end: "pause"}`, spec.ReasonLeaseInvalid, "lease.on_end", "delete, stop"),
		wrong("lease grace", `lease {grace {seconds: -1}}`, spec.ReasonDurationNegative, "lease.grace", "negative"),
		wrong("restart mode", `restart_policy {mode: "always"}`, spec.ReasonRestartPolicyInvalid, "restart_policy.mode", "never, on-failure"),
		wrong("restarts without mode", `restart_policy {max_restarts: 3}`, spec.ReasonRestartPolicyInvalid, "restart_policy.mode", "on-failure"),
		wrong("backoff with never", `restart_policy {mode: "never" backoff {}}`, spec.ReasonRestartPolicyInvalid, "restart_policy.mode", "on-failure"),
		wrong("restart backoff", `restart_policy {mode: "on-failure" backoff {seconds: -1}}`, spec.ReasonDurationNegative, "restart_policy.backoff", "negative"),
		wrong("on_command_end", `command: "x" on_command_end: "restart"`, spec.ReasonOnCommandEndInvalid, "on_command_end", "fail, keep"),
		wrong("on_command_end without a command", `on_command_end: "keep"`, spec.ReasonOnCommandEndInvalid, "on_command_end", "no command"),

		wrong("no GPUs", `gpus: "0"`, spec.ReasonGPUsInvalid, "gpus", `"0"`),
		wrong("negative GPUs", `gpus: "-1"`, spec.ReasonGPUsInvalid, "gpus", `"-1"`),
		wrong("uncountable GPUs", `gpus: "99999999999"`, spec.ReasonGPUsInvalid, "gpus", "a number"),
		wrong("GPUs with a blank", `gpus: "a, b"`, spec.ReasonGPUsInvalid, "gpus", "commas"),
		wrong("GPUs with a gap", `gpus: "a,,b"`, spec.ReasonGPUsInvalid, "gpus", "commas"),

		wrong("network mode", `network {mode: "host"}`, spec.ReasonNetworkModeInvalid, "network.mode", "internet, none, allow"),
		wrong("allow with none", `network {mode: "none" allow {cidr: "192.0.2.0/24"}}`, spec.ReasonNetworkAllowInvalid, "network.allow", `"none"`),
		wrong("allow without mode", `network {allow {cidr: "192.0.2.0/24"}}`, spec.ReasonNetworkAllowInvalid, "network.allow", `mode "allow"`),
		wrong("private with none", `network {mode: "none" private: true}`, spec.ReasonNetworkAllowInvalid, "network.private", `mode "none" reaches nothing`),
		wrong("allow of nothing", `network {mode: "allow"}`, spec.ReasonNetworkAllowInvalid, "network.allow", `mode "none"`),
		wrong("too many destinations", allowing(strings.Repeat(` allow {cidr: "192.0.2.1"}`, 1001)), spec.ReasonNetworkAllowInvalid, "network.allow", "1000"),
		wrong("too many ports", allowing(`allow {cidr: "192.0.2.1" ports: [`+numbers(501)+`]}`), spec.ReasonNetworkAllowInvalid, "network.allow", "each port and protocol"),
		wrong("no range", allowing(`allow {}`), spec.ReasonNetworkCIDRInvalid, "network.allow[0].cidr", `""`),
		wrong("name as range", allowing(`allow {cidr: "example.org"}`), spec.ReasonNetworkCIDRInvalid, "network.allow[0].cidr", "a name is not possible"),
		wrong("IPv6 range", allowing(`allow {cidr: "2001:db8::/32"}`), spec.ReasonNetworkCIDRInvalid, "network.allow[0].cidr", "IPv4"),
		wrong("IPv6 address", allowing(`allow {cidr: "::ffff:192.0.2.1"}`), spec.ReasonNetworkCIDRInvalid, "network.allow[0].cidr", "IPv4"),
		wrong("host bits", allowing(`allow {cidr: "192.0.2.0/24"} allow {cidr: "192.0.2.7/24"}`), spec.ReasonNetworkCIDRInvalid, "network.allow[1].cidr", "192.0.2.0/24 for the range or 192.0.2.7 for"),
		wrong("port 0 allowed", allowing(`allow {cidr: "192.0.2.7" ports: [1, 0]}`), spec.ReasonNetworkPortInvalid, "network.allow[0].ports[1]", "0 is no port"),
		wrong("port 65536 allowed", allowing(`allow {cidr: "192.0.2.7" ports: 65536}`), spec.ReasonNetworkPortInvalid, "network.allow[0].ports[0]", "65535"),
		wrong("icmp allowed", allowing(`allow {cidr: "192.0.2.7" ports: 1 protocol: "icmp"}`), spec.ReasonNetworkProtocolInvalid, "network.allow[0].protocol", `"icmp"`),
		wrong("protocol without ports", allowing(`allow {cidr: "192.0.2.7" protocol: "tcp"}`), spec.ReasonNetworkProtocolInvalid, "network.allow[0].protocol", "without ports"),

		wrong("container port 0", `ports {host_port: 80}`, spec.ReasonPortInvalid, "ports[0].container_port", "0 is no port"),
		wrong("container port 65536", `ports {container_port: 65536}`, spec.ReasonPortInvalid, "ports[0].container_port", "65535"),
		wrong("host port 65536", `ports {container_port: 1 host_port: 65536}`, spec.ReasonPortInvalid, "ports[0].host_port", "to have one chosen"),
		wrong("host name as host_ip", `ports {container_port: 1 host_ip: "localhost"}`, spec.ReasonPortHostIPInvalid, "ports[0].host_ip", "localhost"),
		wrong("IPv6 as host_ip", `ports {container_port: 1 host_ip: "::1"}`, spec.ReasonPortHostIPInvalid, "ports[0].host_ip", "IPv4"),
		wrong("sctp", `ports {container_port: 1 protocol: "sctp"}`, spec.ReasonPortProtocolInvalid, "ports[0].protocol", "tcp or udp"),
		wrong("chosen port twice", `ports {container_port: 1} ports {container_port: 1 host_ip: "127.0.0.1" protocol: "tcp"}`, spec.ReasonPortRepeated, "ports[1]", "create_spec.ports[0]"),
		wrong("host port twice", `ports {container_port: 1 host_port: 9} ports {container_port: 2 host_port: 9}`, spec.ReasonPortRepeated, "ports[1]", "127.0.0.1:9/tcp"),
		wrong("host port on all addresses", `ports {container_port: 1 host_port: 9} ports {container_port: 2 host_port: 9 host_ip: "0.0.0.0"}`, spec.ReasonPortRepeated, "ports[1]", "0.0.0.0:9/tcp"),
		wrong("too many ports published", strings.Repeat(`ports {container_port: 1}`, 1001), spec.ReasonPortsTooMany, "ports", "1000"),
		wrong("ports without network", `ports {container_port: 1} network {mode: "none"}`, spec.ReasonPortsWithoutNetwork, "ports", `"none"`),

		wrong("hostname with _", `hostname: "a_b"`, spec.ReasonHostnameInvalid, "hostname", `"a_b"`),
		wrong("hostname that ends in -", `hostname: "a-.b"`, spec.ReasonHostnameInvalid, "hostname", "letters"),
		wrong("hostname with a long part", `hostname: "`+strings.Repeat("a", 64)+`"`, spec.ReasonHostnameInvalid, "hostname", "63"),
		wrong("long hostname", `hostname: "`+strings.Repeat("a", 40)+"."+strings.Repeat("b", 24)+`"`, spec.ReasonHostnameInvalid, "hostname", "Linux takes 64"),
		wrong("extra host with blank", `extra_hosts {key: "a b" value: "192.0.2.1"}`, spec.ReasonExtraHostInvalid, `extra_hosts["a b"]`, "no host name"),
		wrong("long extra host", `extra_hosts {key: "`+strings.Repeat("a.", 126)+`ab" value: "192.0.2.1"}`, spec.ReasonExtraHostInvalid, `extra_hosts["`+strings.Repeat("a.", 126)+`ab"]`, "253"),
		wrong("the host as extra host", `extra_hosts {key: "a" value: "host-gateway"}`, spec.ReasonExtraHostInvalid, `extra_hosts["a"]`, "no sandbox may reach"),
		wrong("name as extra host", `extra_hosts {key: "a" value: "b"}`, spec.ReasonExtraHostInvalid, `extra_hosts["a"]`, "no IP address"),
		wrong("extra host with a zone", `extra_hosts {key: "a" value: "fe80::1%eth0"}`, spec.ReasonExtraHostInvalid, `extra_hosts["a"]`, "no IP address"),
	})
}

func allowing(allow string) string { return `network {mode: "allow" ` + allow + `}` }

func published(n int) string {
	text := ""
	for i := range n {
		text += fmt.Sprintf(`ports {container_port: %d host_ip: "127.0.0.1" protocol: "tcp"} `, i+1)
	}
	return text
}

func numbers(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(i + 1)
	}
	return strings.Join(list, ",")
}

// What is accepted comes out in one form, and as it is when it has only one.
func TestOneForm(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"one form already", `
			command: "serve" command: "" user: "1000:1000" working_dir: "/srv" on_command_end: "keep" cpu_limit: 0.01 memory_limit: 16777216
			pids_limit: 4194304 disk_limit: 1048576 gpus: "all" shm_size: 1 pull_policy: "never"
			hostname: "a-1.b" allow_new_privileges: true network {mode: "none"}`, ""},
		{"defaults by name", `command: "x" on_idle: "stop" on_expiry: "delete" on_command_end: "fail" pull_policy: "missing" network {mode: "internet"}`, ""},
		{"limits at their ends", `cpu_limit: 8192 pids_limit: 48 gpus: "2147483647" hostname: "` + strings.Repeat("a", 32) + "." + strings.Repeat("b", 31) + `"`, ""},
		{"devices", `gpus: "GPU-8f1e,1"`, ""},
		{"a user by name", `user: "www-data:adm"`, ""},
		{"a user of a directory service", `user: "_apt.x@corp$"`, ""},
		{"working_dir", `working_dir: "//srv/./app/"`, `working_dir: "/srv/app"`},
		{"working_dir at the root", `working_dir: "/"`, ""},
		{"tmpfs", `tmpfs {target: "/tmp//x/"} tmpfs {target: "/copy/in" size: 1}`, `tmpfs {target: "/tmp/x"} tmpfs {target: "/copy/in" size: 1}`},
		{"capabilities", `cap_add: "ipc_lock" cap_add: "CAP_CHOWN" cap_add: "Cap_Kill"`, `cap_add: "IPC_LOCK" cap_add: "CHOWN" cap_add: "KILL"`},
		{"ports", `ports {container_port: 65535} ports {container_port: 65535 protocol: "udp"} ports {container_port: 1 host_port: 65535 host_ip: "0.0.0.0"}`,
			`ports {container_port: 65535 host_ip: "127.0.0.1" protocol: "tcp"} ports {container_port: 65535 host_ip: "127.0.0.1" protocol: "udp"}
			 ports {container_port: 1 host_port: 65535 host_ip: "0.0.0.0" protocol: "tcp"}`},
		{"one container port in two places", `ports {container_port: 1 host_port: 8} ports {container_port: 1 host_port: 9} ports {container_port: 2 host_port: 9 host_ip: "127.0.0.2"}`,
			`ports {container_port: 1 host_port: 8 host_ip: "127.0.0.1" protocol: "tcp"} ports {container_port: 1 host_port: 9 host_ip: "127.0.0.1" protocol: "tcp"}
			 ports {container_port: 2 host_port: 9 host_ip: "127.0.0.2" protocol: "tcp"}`},
		{"ports to be chosen", `ports {container_port: 1 host_ip: "127.0.0.1" protocol: "tcp"} ports {container_port: 2 host_ip: "127.0.0.1" protocol: "tcp"}
			ports {container_port: 1 host_ip: "127.0.0.2" protocol: "tcp"}`, ""},
		{"as many ports published as there may be", published(1000), ""},
		{"destinations", allowing(`allow {cidr: "192.0.2.1" ports: [443, 80, 443]} allow {cidr: "0.0.0.0/0" ports: 53 protocol: "udp"}`),
			allowing(`allow {cidr: "192.0.2.1/32" ports: [80, 443]} allow {cidr: "0.0.0.0/0" ports: 53 protocol: "udp"}`)},
		{"as many destinations as there may be", allowing(strings.Repeat(` allow {cidr: "192.0.2.1/32"}`, 1000)), ""},
		{"as many ports as there may be", allowing(`allow {cidr: "192.0.2.1/32" protocol: "tcp" ports: [` + numbers(1000) + `]}`), ""},
		{"extra hosts", `extra_hosts {key: "a" value: "2001:DB8:0::1"} extra_hosts {key: "b.c" value: "192.0.2.1"}`,
			`extra_hosts {key: "a" value: "2001:db8::1"} extra_hosts {key: "b.c" value: "192.0.2.1"}`},
		{"the longest extra host", `extra_hosts {key: "` + strings.Repeat("a.", 126) + `a" value: "192.0.2.1"}`, ""},
		{"a service", `optional_services {name: "s" image: "x" command: "-v" user: "999" cpu_limit: 2 memory_limit: 6291456 pids_limit: 9 disk_limit: 1048576
			shm_size: 7 tmpfs {target: "/work"} cap_add: "cap_ipc_lock" pull_policy: "always"}`,
			`optional_services {name: "s" image: "x" command: "-v" user: "999" cpu_limit: 2 memory_limit: 6291456 pids_limit: 9 disk_limit: 1048576
			shm_size: 7 tmpfs {target: "/work"} cap_add: "IPC_LOCK" pull_policy: "always"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			in, want := fullSpec(m), fullSpec(m)
			m.add(in, tt.in)
			if tt.want == "" {
				tt.want = tt.in
			}
			m.add(want, tt.want)
			got, err := m.resolve(in)
			if err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got.Spec, want) {
				t.Errorf("spec\n%v\nwant\n%v", got.Spec, want)
			}
		})
	}
}

func TestAllowedCapabilities(t *testing.T) {
	m := newMachine(t)
	for _, tt := range []struct {
		allowed []string
		add     string
		ok      bool
	}{
		{[]string{"cap_sys_ptrace"}, "SYS_PTRACE", true},
		{[]string{"SYS_PTRACE"}, "SYS_ADMIN", false},
		{[]string{"SYS_PTRACE"}, "ALL", false},
		{[]string{"all"}, "SYS_ADMIN", true},
		{[]string{"ALL"}, "ALL", true},
		{[]string{"ALL"}, "EVERY", false},
	} {
		host := m.host()
		host.AllowedCapabilities = tt.allowed
		_, err := spec.Resolve(&agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "x", CapAdd: []string{tt.add}}}, host)
		if (err == nil) != tt.ok {
			t.Errorf("%q with %q allowed: %v", tt.add, tt.allowed, err)
		}
	}
}

func TestUser(t *testing.T) {
	for _, user := range []string{"", "root", "0:0", "agbox:staff", "2147483647"} {
		if err := spec.ValidateUser("user", user); err != nil {
			t.Error(err)
		}
	}
	wantRefusal(t, spec.ValidateUser("f", "a/b"), spec.ReasonUserInvalid, "f", `"a/b"`)
	wantRefusal(t, spec.ValidateExec(&agboxv1.CreateExecRequest{SandboxId: "box1", Command: []string{"true"}, User: "a\n"}), spec.ReasonUserInvalid, "user", `\n`)
}

// A network that replaces another leaves nothing of it.
func TestNetworkReplaces(t *testing.T) {
	m := newMachine(t)
	got, err := spec.Resolve(&agboxv1.CreateSandboxRequest{
		ConfigYaml: []byte("image: x\nnetwork: {mode: allow, allow: [{cidr: 192.0.2.1}]}\ncpu_limit: 2\nextra_hosts: {a: 192.0.2.1}\n"),
		CreateSpec: &agboxv1.CreateSpec{Network: &agboxv1.NetworkSpec{Mode: "none"}, ExtraHosts: map[string]string{"b": "192.0.2.2"}},
	}, m.host())
	if err != nil {
		t.Fatal(err)
	}
	want := &agboxv1.CreateSpec{Image: "x", CpuLimit: 2, Network: &agboxv1.NetworkSpec{Mode: "none"},
		ExtraHosts: map[string]string{"a": "192.0.2.1", "b": "192.0.2.2"}}
	if !proto.Equal(got.Spec, want) {
		t.Errorf("got %v, want %v", got.Spec, want)
	}
	if _, err := m.resolve(&agboxv1.CreateSpec{Image: "x", CpuLimit: math.Copysign(0, -1)}); err != nil {
		t.Error(err)
	}
}
