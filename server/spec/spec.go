// Package spec turns a create request into what the daemon runs: it reads config_yaml, lays the explicit
// fields over it, resolves the builtin tools on this host and refuses what cannot or must not be run,
// before anything is reserved or created.
package spec

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/agbox-dev/agbox/hostpath"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Host is what Resolve has to know about the machine, besides its file system, which it reads.
type Host struct {
	// Places are what no sandbox may mount or copy, what lies in it, or a directory that contains it. Builtin tools are
	// taken from Places.Home.
	hostpath.Places
	// ReadOnlyBelow: the engine makes what is mounted in the source of a read-only mount read-only as well.
	ReadOnlyBelow bool
	// DefaultIdleTTL applies to a spec that sets none; 0 is never.
	DefaultIdleTTL time.Duration
	// AllowedCapabilities are those that cap_add may name although they weaken the isolation, from the
	// configuration's sandbox.allowed_capabilities. Case and the prefix CAP_ do not count; "ALL" allows all.
	AllowedCapabilities []string
	// Ceilings are the operator's on what a container may use.
	Ceilings Ceilings
}

// Resolved is a request that may be accepted as it is. The file system was looked at once: what it says
// of sources held when Resolve returned.
type Resolved struct {
	// Spec is config_yaml with the explicit fields laid over it. Paths are clean, capabilities upper case
	// without CAP_, destinations masked prefixes with sorted ports, ports with host_ip and protocol, addresses
	// in their usual form, a mount's mode said by writable but for ModeCopyOnWrite, limits the operator's where they
	// were left out. No other default is filled in.
	Spec *agboxv1.CreateSpec
	// Mounts are all mounts of the host's files, those of Spec first, then those of its builtin tools. No target
	// occurs twice, and no copy of Spec has one of them.
	Mounts []Mount
	// Sources tells what the sources of Mounts and of Spec's copies were, by path.
	Sources map[string]hostpath.Identity
	// Envs are the variables that builtin tools need in the primary container. Spec.Envs wins over
	// them: a name that it sets is not here.
	Envs map[string]string
	// Skipped tells, one sentence each, which optional tool mounts were left out and why.
	Skipped []string
	// IdleTTL is the time without an exec after which the sandbox is stopped; 0 is never.
	IdleTTL time.Duration
}

// Mount is one live mount. Source is a clean absolute host path without symbolic links.
type Mount struct {
	Source   string
	Target   string
	Writable bool
	// CopyOnWrite: the sandbox writes to a layer of its own. Then Writable, which is about the host's files, is not set.
	CopyOnWrite bool
	// Tool is the builtin tool that asked for it, "" for a mount of the spec.
	Tool string
}

// Resolve validates the request and returns what to run. It does not change the request. The error is
// an *Error about the first thing that is wrong.
func Resolve(req *agboxv1.CreateSandboxRequest, host Host) (*Resolved, error) {
	return resolve(req, host, func(spec *agboxv1.CreateSpec) (*agboxv1.CreateSpec, error) { return spec, nil })
}

// resolve has complete add to what the request says.
func resolve(req *agboxv1.CreateSandboxRequest, host Host, complete func(*agboxv1.CreateSpec) (*agboxv1.CreateSpec, error)) (*Resolved, error) {
	if id := req.GetSandboxId(); id != "" {
		if err := ValidateSandboxID("sandbox_id", id); err != nil {
			return nil, err
		}
	}
	spec, err := ParseYAML(req.GetConfigYaml())
	if err != nil {
		return nil, err
	}
	if spec, err = complete(Merge(spec, req.GetCreateSpec())); err != nil {
		return nil, err
	}
	if err := cmp.Or(validateSize(spec), validateScalars(spec)); err != nil {
		return nil, err
	}
	r := &resolver{host: host, guard: host.Guard(), targets: targets{},
		out: &Resolved{Spec: spec, Envs: map[string]string{}, Sources: map[string]hostpath.Identity{}}}
	for _, step := range []func() error{r.mounts, r.copies, r.tools, r.primary, r.services, r.ceilings} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	r.out.IdleTTL = host.DefaultIdleTTL
	if spec.IdleTtl != nil {
		r.out.IdleTTL = spec.IdleTtl.AsDuration()
	}
	return r.out, nil
}

// Merge returns base with over laid on top: a scalar, message or list that over sets replaces, maps merge by
// key and over wins. An empty list or string in over counts as not set, an idle_ttl of 0 as set. Neither
// argument is changed; either may be nil.
func Merge(base, over *agboxv1.CreateSpec) *agboxv1.CreateSpec {
	out := &agboxv1.CreateSpec{}
	if base != nil {
		out = proto.CloneOf(base)
	}
	if over == nil {
		return out
	}
	overlay(out.ProtoReflect(), proto.CloneOf(over).ProtoReflect())
	return out
}

func validateScalars(spec *agboxv1.CreateSpec) error {
	return cmp.Or(
		validateImage("create_spec.image", spec.Image, ReasonImageRequired),
		validateEnvs("create_spec.envs", spec.Envs),
		ValidateLabels("create_spec.labels", spec.Labels),
		ValidateDuration("create_spec.idle_ttl", spec.IdleTtl),
		validatePool(spec.Pool),
	)
}

func validateImage(field, image, required string) error {
	switch {
	case image == "":
		return refuse(required, field, "no image is given; name one, for example \"debian:bookworm\"")
	case strings.HasPrefix(image, "-"), strings.ContainsFunc(image, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return refuse(ReasonImageInvalid, field, "%q is not an image reference; write it as name:tag or name@digest", image)
	}
	return nil
}

type resolver struct {
	host    Host
	guard   *hostpath.Guard
	targets targets
	out     *Resolved
}

func (r *resolver) mounts() error {
	for i, m := range r.out.Spec.Mounts {
		field := fmt.Sprintf("create_spec.mounts[%d]", i)
		source, err := r.copySource(field+".source", m.GetSource())
		if err != nil {
			return err
		}
		target, err := r.targets.claim(field+".target", m.GetTarget())
		if err != nil {
			return err
		}
		writable, copyOnWrite, err := mode(field+".mode", m)
		if err != nil {
			return err
		}
		mount := Mount{Source: source, Target: target, Writable: writable, CopyOnWrite: copyOnWrite}
		if err := r.mountSource(field+".source", mount); err != nil {
			return err
		}
		m.Source, m.Target, m.Writable, m.Mode, m.Accepted = source, target, writable, "", nil
		if copyOnWrite {
			m.Mode = ModeCopyOnWrite
		}
		r.out.Mounts = append(r.out.Mounts, mount)
	}
	return nil
}
