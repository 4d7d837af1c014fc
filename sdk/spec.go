package sdk

import (
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// NeverIdle as a Spec's IdleTTL: the sandbox is never stopped for being idle.
const NeverIdle time.Duration = -1

// Spec describes a sandbox to create. The daemon checks all of it before it accepts.
type Spec struct {
	Image            string
	Mounts           []Mount
	Copies           []Copy
	BuiltinTools     []string // claude, codex, git, uv, npm, apt
	RequiredServices []Service
	OptionalServices []Service
	Labels           map[string]string
	Env              map[string]string
	IdleTTL          time.Duration // 0: the daemon's default
}

// Mount is a live bind mount. Both paths are absolute.
type Mount struct {
	Source   string // a file or directory of the daemon's host
	Target   string
	Writable bool
}

// Copy is copied into the sandbox once, when it is created. Both paths are absolute.
type Copy struct {
	Source  string // a file or directory of the daemon's host
	Target  string
	Exclude []string // patterns of what stays out
}

// Service runs beside the sandbox on its network, reachable under its name.
type Service struct {
	Name               string
	Image              string
	Env                map[string]string
	Healthcheck        *Healthcheck // a required service must have one
	PostStartOnPrimary []string     // commands for the sandbox once the service is healthy
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
	}
	for _, m := range s.Mounts {
		p.Mounts = append(p.Mounts, &agboxv1.MountSpec{Source: m.Source, Target: m.Target, Writable: m.Writable})
	}
	for _, c := range s.Copies {
		p.Copies = append(p.Copies, &agboxv1.CopySpec{Source: c.Source, Target: c.Target, ExcludePatterns: c.Exclude})
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
		p := &agboxv1.ServiceSpec{Name: s.Name, Image: s.Image, Envs: s.Env, PostStartOnPrimary: s.PostStartOnPrimary}
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

func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func servicesOf(list []*agboxv1.ServiceSpec) []Service {
	var out []Service
	for _, p := range list {
		s := Service{Name: p.GetName(), Image: p.GetImage(), Env: p.GetEnvs(), PostStartOnPrimary: p.GetPostStartOnPrimary()}
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
