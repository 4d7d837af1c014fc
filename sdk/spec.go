package sdk

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// NeverIdle as a Spec's IdleTTL: the sandbox is never stopped for being idle.
const NeverIdle time.Duration = -1

// Spec describes a sandbox to create. The daemon checks all of it before it accepts.
type Spec struct {
	Image            string
	PullPolicy       PullPolicy
	Mounts           []Mount
	Copies           []Copy
	Tmpfs            []Tmpfs
	BuiltinTools     []string // claude, codex, git, uv, npm, apt; NAME:rw has the tool write to the host's files
	RequiredServices []Service
	OptionalServices []Service
	Labels           map[string]string
	Env              map[string]string
	IdleTTL          time.Duration // 0: the daemon's default

	// Command is the sandbox's own main process, run by the image's ENTRYPOINT if it has one. None: the
	// sandbox just stays up.
	Command []string
	// OnCommandEnd says what the end of Command means. For a Spec with a Command only.
	OnCommandEnd CommandEnd
	// MaxDuration is how long the sandbox may exist, 0 for ever; OnExpiry what happens then: "delete" (or ""), "stop", "pause".
	MaxDuration time.Duration
	OnExpiry    string
	// OnIdle is what happens to an idle sandbox: "stop" (or ""), "pause", "delete".
	OnIdle string
	// Wake is what the sandbox goes on for when it is paused or stopped, beside being asked to: "" nothing, WakeOnTraffic.
	Wake Wake
	// Lazy accepts the sandbox as DORMANT and makes it at its first exec, file access or Resume, which waits for that.
	Lazy bool
	// Lease has the sandbox end with those who Hold it; nil: it is nobody's.
	Lease *Lease
	// Restart starts a sandbox that crashed again; nil: it stays FAILED.
	Restart *RestartOnFailure
	// User, a name or a number with an optional ":group", runs Command and the execs that name none.
	User string
	// WorkingDir is absolute, where Command and execs start. "": /workspace.
	WorkingDir string

	Limits
	GPUs               string   // "all", a number, or device ids separated by commas; "": none
	ReadOnlyRoot       bool     // mounts, Tmpfs and /workspace stay writable
	CapAdd             []string // beside the default capabilities, such as IPC_LOCK
	AllowNewPrivileges bool     // lets setuid programs such as sudo work
	Runtime            string   // the engine's runtime, such as runsc; "": the engine's default
	NeverWarm          bool     // it is not one that was made ahead

	Network    *Network // nil: the internet
	Ports      []Port
	Hostname   string
	ExtraHosts map[string]string // host name to IP address
}

// Limits bound a sandbox or one of its services; 0 is the default.
type Limits struct {
	CPULimit    float64 // CPUs, from 0.01; default: no limit
	MemoryLimit int64   // bytes, from 16 MiB, a service from 6 MiB; default: no limit
	PidsLimit   int64   // processes and threads; default: 4096
	DiskLimit   int64   // bytes of the container's own file system, from 1 MiB; default: no limit
	ShmSize     int64   // bytes of /dev/shm; default: the engine's
}

// Lease says what becomes of a sandbox that nobody holds.
type Lease struct {
	Grace time.Duration // how long nobody may hold it; 0: 30 s
	OnEnd string        // "delete" (or ""), "stop"
}

// RestartOnFailure says how a crashed sandbox is started again.
type RestartOnFailure struct {
	Max     uint32        // in a row; 0: 5
	Backoff time.Duration // before the first, doubled for each further one up to 5 minutes; 0: 1 s
}

// PullPolicy says when an image is pulled.
type PullPolicy string

const (
	PullMissing PullPolicy = "missing" // also ""
	PullAlways  PullPolicy = "always"
	PullNever   PullPolicy = "never"
)

// CommandEnd says what the end of a sandbox's command means, whatever its exit code.
type CommandEnd string

const (
	CommandEndFails CommandEnd = "fail" // the sandbox becomes FAILED; also ""
	CommandEndKeeps CommandEnd = "keep" // the sandbox stays READY
)

// Tmpfs is a directory in memory, empty at each start.
type Tmpfs struct {
	Target string // absolute
	Size   int64  // bytes; 0: half of the host's memory
}

// Port is a port of the sandbox that is published on the daemon's host.
type Port struct {
	ContainerPort uint16
	HostPort      uint16 // 0: the engine chooses
	HostIP        string // IPv4; "": 127.0.0.1
	Protocol      string // tcp or udp; "": tcp
}

// NetworkMode is what a sandbox may reach beside its own services. The daemon's host and other sandboxes it never
// may.
type NetworkMode string

const (
	NetworkInternet NetworkMode = "internet" // also "": what is public
	NetworkNone     NetworkMode = "none"
	NetworkAllow    NetworkMode = "allow" // what Allow lists
)

// Network is what a sandbox may reach.
type Network struct {
	Mode  NetworkMode
	Allow []Destination // for NetworkAllow, at most 1,000, counting each port and protocol
	// Private opens private and other special addresses too: in mode internet all of them, in mode allow those in ranges
	// that are partly public, such as 0.0.0.0/0.
	Private bool
}

// Destination is a part of the network.
type Destination struct {
	CIDR     string   // an IPv4 range or address
	Ports    []uint16 // none: all ports and protocols
	Protocol string   // tcp or udp, with Ports only; "": both
}

// Mount is a live mount. Both paths are absolute.
type Mount struct {
	Source   string // a file or directory of the daemon's host
	Target   string
	Writable bool
	// CopyOnWrite: the sandbox reads the host's files and writes to a layer of its own, which ends with it; Changes
	// tells what is in there. It excludes Writable, which is about the host's files.
	CopyOnWrite bool
}

// Copy is copied into the sandbox once, when it is created. Both paths are absolute.
type Copy struct {
	Source  string // a file or directory of the daemon's host
	Target  string
	Exclude []string // patterns of what stays out
	// Owner is whom it belongs to in the sandbox, a name or number, optionally ":group"; "" as whom an exec would run. With
	// KeepOwner it keeps the host's uid and gid.
	Owner     string
	KeepOwner bool
}

// Service runs beside the sandbox on its network, reachable under its name.
type Service struct {
	Name               string
	Image              string
	Env                map[string]string
	Healthcheck        *Healthcheck // a required service must have one
	PostStartOnPrimary []string     // commands for the sandbox once the service is healthy
	Command            []string     // in place of the image's CMD
	User               string
	PullPolicy         PullPolicy
	Limits
	Tmpfs  []Tmpfs
	CapAdd []string
}

// Healthcheck has the meaning of Docker's, zero values its defaults.
type Healthcheck struct {
	Test          []string // CMD or CMD-SHELL first
	Interval      time.Duration
	Timeout       time.Duration
	Retries       uint32
	StartPeriod   time.Duration
	StartInterval time.Duration
}

func (s Spec) proto() *agboxv1.CreateSpec {
	p := &agboxv1.CreateSpec{
		Image:            s.Image,
		BuiltinTools:     s.BuiltinTools,
		RequiredServices: services(s.RequiredServices),
		OptionalServices: services(s.OptionalServices),
		Labels:           s.Labels,
		Envs:             s.Env,

		Command:            s.Command,
		OnCommandEnd:       string(s.OnCommandEnd),
		MaxDuration:        duration(s.MaxDuration),
		OnExpiry:           s.OnExpiry,
		OnIdle:             s.OnIdle,
		Wake:               string(s.Wake),
		User:               s.User,
		WorkingDir:         s.WorkingDir,
		CpuLimit:           s.CPULimit,
		MemoryLimit:        s.MemoryLimit,
		PidsLimit:          s.PidsLimit,
		DiskLimit:          s.DiskLimit,
		ShmSize:            s.ShmSize,
		Tmpfs:              tmpfs(s.Tmpfs),
		Gpus:               s.GPUs,
		ReadOnlyRoot:       s.ReadOnlyRoot,
		PullPolicy:         string(s.PullPolicy),
		Hostname:           s.Hostname,
		ExtraHosts:         s.ExtraHosts,
		CapAdd:             s.CapAdd,
		AllowNewPrivileges: s.AllowNewPrivileges,
		Runtime:            s.Runtime,
	}
	if s.NeverWarm {
		p.Pool = "never"
	}
	for _, m := range s.Mounts {
		mount := &agboxv1.MountSpec{Source: m.Source, Target: m.Target, Writable: m.Writable}
		if m.CopyOnWrite {
			mount.Mode = "cow"
		}
		p.Mounts = append(p.Mounts, mount)
	}
	for _, c := range s.Copies {
		p.Copies = append(p.Copies, &agboxv1.CopySpec{Source: c.Source, Target: c.Target, ExcludePatterns: c.Exclude, Owner: c.Owner, KeepOwner: c.KeepOwner})
	}
	for _, x := range s.Ports {
		p.Ports = append(p.Ports, &agboxv1.PortSpec{
			ContainerPort: uint32(x.ContainerPort), HostPort: uint32(x.HostPort), HostIp: x.HostIP, Protocol: x.Protocol,
		})
	}
	if n := s.Network; n != nil {
		p.Network = &agboxv1.NetworkSpec{Mode: string(n.Mode), Private: n.Private}
		for _, d := range n.Allow {
			to := &agboxv1.NetworkDestination{Cidr: d.CIDR, Protocol: d.Protocol}
			for _, port := range d.Ports {
				to.Ports = append(to.Ports, uint32(port))
			}
			p.Network.Allow = append(p.Network.Allow, to)
		}
	}
	p.Lazy = s.Lazy
	if l := s.Lease; l != nil {
		p.Lease = &agboxv1.LeaseSpec{Grace: duration(l.Grace), OnEnd: l.OnEnd}
	}
	if r := s.Restart; r != nil {
		p.RestartPolicy = &agboxv1.RestartPolicy{Mode: "on-failure", MaxRestarts: r.Max, Backoff: duration(r.Backoff)}
	}
	switch s.IdleTTL {
	case 0:
	case NeverIdle:
		p.IdleTtl = durationpb.New(0)
	default:
		p.IdleTtl = durationpb.New(s.IdleTTL)
	}
	return p
}

func services(list []Service) []*agboxv1.ServiceSpec {
	var out []*agboxv1.ServiceSpec
	for _, s := range list {
		p := &agboxv1.ServiceSpec{
			Name: s.Name, Image: s.Image, Envs: s.Env, PostStartOnPrimary: s.PostStartOnPrimary,
			Command: s.Command, User: s.User, PullPolicy: string(s.PullPolicy),
			CpuLimit: s.CPULimit, MemoryLimit: s.MemoryLimit, PidsLimit: s.PidsLimit, DiskLimit: s.DiskLimit, ShmSize: s.ShmSize,
			Tmpfs: tmpfs(s.Tmpfs), CapAdd: s.CapAdd,
		}
		if h := s.Healthcheck; h != nil {
			p.Healthcheck = &agboxv1.HealthcheckConfig{
				Test:          h.Test,
				Interval:      duration(h.Interval),
				Timeout:       duration(h.Timeout),
				Retries:       h.Retries,
				StartPeriod:   duration(h.StartPeriod),
				StartInterval: duration(h.StartInterval),
			}
		}
		out = append(out, p)
	}
	return out
}

func tmpfs(list []Tmpfs) []*agboxv1.TmpfsSpec {
	var out []*agboxv1.TmpfsSpec
	for _, t := range list {
		out = append(out, &agboxv1.TmpfsSpec{Target: t.Target, Size: t.Size})
	}
	return out
}

func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func servicesOf(list []*agboxv1.ServiceSpec) []Service {
	var out []Service
	for _, p := range list {
		s := Service{
			Name: p.GetName(), Image: p.GetImage(), Env: p.GetEnvs(), PostStartOnPrimary: p.GetPostStartOnPrimary(),
			Command: p.GetCommand(), User: p.GetUser(), PullPolicy: PullPolicy(p.GetPullPolicy()),
			Limits: Limits{p.GetCpuLimit(), p.GetMemoryLimit(), p.GetPidsLimit(), p.GetDiskLimit(), p.GetShmSize()},
			CapAdd: p.GetCapAdd(),
		}
		for _, t := range p.GetTmpfs() {
			s.Tmpfs = append(s.Tmpfs, Tmpfs{Target: t.GetTarget(), Size: t.GetSize()})
		}
		if h := p.GetHealthcheck(); h != nil {
			s.Healthcheck = &Healthcheck{
				Test:          h.GetTest(),
				Interval:      h.GetInterval().AsDuration(),
				Timeout:       h.GetTimeout().AsDuration(),
				Retries:       h.GetRetries(),
				StartPeriod:   h.GetStartPeriod().AsDuration(),
				StartInterval: h.GetStartInterval().AsDuration(),
			}
		}
		out = append(out, s)
	}
	return out
}

// Wake is what a sandbox goes on for.
type Wake string

// WakeOnTraffic: a connection to one of the sandbox's ports, by DialPort or a gateway.
const WakeOnTraffic Wake = "traffic"
