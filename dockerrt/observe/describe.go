package observe

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	dockercontainer "github.com/docker/docker/api/types/container"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/container"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/layout"
	"github.com/agbox-dev/agbox/dockerrt/network"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Describe implements runtime.Runtime. What a container does not tell is left out: deadlines, a lease, hooks, copies, and which
// services the sandbox cannot be without.
func (o *Observer) Describe(ctx context.Context, sandboxID string) (_ runtime.Found, err error) {
	defer engine.Mark(&err)
	ctx, cancel := o.engine.Read(ctx)
	defer cancel()
	found := runtime.Found{Spec: &agboxv1.CreateSpec{IdleTtl: durationpb.New(0)}, CreatedAt: o.layout.Since(sandboxID)}
	containers, err := o.engine.Containers(ctx, sandboxID, true)
	if err != nil {
		return found, fmt.Errorf("dockerrt: %w", err)
	}
	networks, err := o.networks.Find(ctx, sandboxID)
	if err != nil {
		return found, fmt.Errorf("dockerrt: %w", err)
	}
	for _, n := range networks {
		if found.Spec.Network, err = o.networks.Reach(n); err != nil {
			return found, fmt.Errorf("dockerrt: %w", err)
		}
	}
	primary := false
	for _, c := range containers {
		inspected, err := o.engine.ContainerInspect(ctx, c.ID)
		if err != nil {
			return found, fmt.Errorf("dockerrt: cannot inspect %s: %w", c.ID, err)
		}
		switch {
		case c.Labels[engine.LabelComponent] == engine.ComponentPrimary:
			primary = true
			if err := o.describePrimary(ctx, sandboxID, inspected, &found); err != nil {
				return found, err
			}
		case c.Labels[engine.LabelService] != "":
			found.Spec.OptionalServices = append(found.Spec.OptionalServices, &agboxv1.ServiceSpec{
				Name: c.Labels[engine.LabelService], Image: o.imageName(ctx, inspected.Image), User: inspected.Config.User,
			})
		}
	}
	slices.SortFunc(found.Spec.OptionalServices, func(a, b *agboxv1.ServiceSpec) int { return cmp.Compare(a.Name, b.Name) })
	if !primary && len(containers)+len(networks) > 0 {
		found.Phase, found.Code = agboxv1.SandboxState_SANDBOX_STATE_FAILED, "SANDBOX_RUNTIME_CORRUPT"
		found.Message = fmt.Sprintf("its container %s is missing: delete the sandbox and create it again", engine.PrimaryName(sandboxID))
	}
	return found, nil
}

func (o *Observer) describePrimary(ctx context.Context, sandboxID string, c dockercontainer.InspectResponse, found *runtime.Found) (err error) {
	found.Phase = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	switch {
	case c.State.Paused:
		found.Phase = agboxv1.SandboxState_SANDBOX_STATE_PAUSED
	case c.State.Running:
		found.Phase = agboxv1.SandboxState_SANDBOX_STATE_READY
	}
	if at, err := time.Parse(time.RFC3339Nano, c.Created); err == nil {
		found.CreatedAt = at
	}
	spec, host := found.Spec, c.HostConfig
	spec.Image = o.imageName(ctx, c.Image)
	if image, err := o.engine.ImageInspect(ctx, c.Image); err == nil && image.Config != nil {
		spec.Envs = o.envsOf(c.Config.Env, image.Config.Env)
	} else {
		spec.Envs = o.envsOf(c.Config.Env, nil)
	}
	spec.Labels = map[string]string{}
	for key, value := range c.Config.Labels {
		if name, user := strings.CutPrefix(key, engine.LabelUser); user {
			spec.Labels[name] = value
		}
	}
	describeInit(spec, c.Config)
	if text, err := os.ReadFile(o.layout.SpecFile(sandboxID)); err == nil { // it took what was made ahead, which does not tell
		taken := &agboxv1.CreateSpec{}
		if err := protojson.Unmarshal(text, taken); err != nil {
			return fmt.Errorf("dockerrt: %s: %w", o.layout.SpecFile(sandboxID), err)
		}
		spec.Envs, spec.Labels, spec.User, spec.WorkingDir, spec.Command = taken.Envs, taken.Labels, taken.User, taken.WorkingDir, taken.Command
	}
	if err := json.Unmarshal([]byte(c.Config.Labels[engine.LabelMounts]), &spec.Mounts); err != nil {
		return fmt.Errorf("dockerrt: label %s of container %s: %w", engine.LabelMounts, c.Name, err)
	}
	describeLimits(spec, host)
	if host.NetworkMode == "none" {
		spec.Network = &agboxv1.NetworkSpec{Mode: network.ModeNone}
	}
	for port, bindings := range host.PortBindings {
		for _, binding := range bindings {
			number, _ := strconv.ParseUint(binding.HostPort, 10, 16)
			spec.Ports = append(spec.Ports, &agboxv1.PortSpec{
				ContainerPort: uint32(port.Int()), Protocol: port.Proto(), HostIp: binding.HostIP, HostPort: uint32(number)})
		}
	}
	slices.SortFunc(spec.Ports, func(a, b *agboxv1.PortSpec) int { return cmp.Compare(a.ContainerPort, b.ContainerPort) })
	if found.Phase != agboxv1.SandboxState_SANDBOX_STATE_STOPPED {
		found.Ports, err = o.containers.PublishedPorts(ctx, sandboxID, spec)
	}
	return err
}

// describeInit reads what agbox-init was told.
func describeInit(spec *agboxv1.CreateSpec, config *dockercontainer.Config) {
	if config.WorkingDir != layout.Workdir {
		spec.WorkingDir = config.WorkingDir
	}
	if len(config.Hostname) != 12 { // not the engine's own choice
		spec.Hostname = config.Hostname
	}
	for _, word := range config.Entrypoint {
		if user, ok := strings.CutPrefix(word, "--user="); ok {
			spec.User = user
		}
		if words, ok := strings.CutPrefix(word, "--entrypoint-words="); ok {
			if n, err := strconv.Atoi(words); err == nil && n <= len(config.Cmd) {
				spec.Command = config.Cmd[n:]
			}
		}
	}
}

func describeLimits(spec *agboxv1.CreateSpec, host *dockercontainer.HostConfig) {
	spec.CpuLimit, spec.MemoryLimit = float64(host.NanoCPUs)/1e9, host.Memory
	if host.PidsLimit != nil && *host.PidsLimit != container.PidsLimit {
		spec.PidsLimit = *host.PidsLimit
	}
	if host.ShmSize != engineShm {
		spec.ShmSize = host.ShmSize
	}
	spec.DiskLimit, _ = strconv.ParseInt(host.StorageOpt["size"], 10, 64)
	for _, target := range slices.Sorted(maps.Keys(host.Tmpfs)) {
		tmpfs := &agboxv1.TmpfsSpec{Target: target}
		for option := range strings.SplitSeq(host.Tmpfs[target], ",") {
			if size, ok := strings.CutPrefix(option, "size="); ok {
				tmpfs.Size, _ = strconv.ParseInt(size, 10, 64)
			}
		}
		spec.Tmpfs = append(spec.Tmpfs, tmpfs)
	}
	for _, name := range host.CapAdd {
		spec.CapAdd = append(spec.CapAdd, strings.TrimPrefix(name, "CAP_"))
	}
	spec.ReadOnlyRoot = host.ReadonlyRootfs
	spec.AllowNewPrivileges = !slices.Contains(host.SecurityOpt, "no-new-privileges")
	for _, entry := range host.ExtraHosts {
		if name, address, ok := strings.Cut(entry, ":"); ok {
			if spec.ExtraHosts == nil {
				spec.ExtraHosts = map[string]string{}
			}
			spec.ExtraHosts[name] = address
		}
	}
}

// engineShm is what an engine gives a container for /dev/shm that asks for nothing.
const engineShm = 64 << 20

// envsOf is what the spec has added to the image's own environment.
func (o *Observer) envsOf(all, images []string) map[string]string {
	envs := map[string]string{}
	for _, entry := range all {
		if slices.Contains(images, entry) || slices.Contains(o.containers.Environment(nil), entry) {
			continue
		}
		name, value, _ := strings.Cut(entry, "=")
		envs[name] = value
	}
	return envs
}

// imageName is a name of the image that a person knows, where it still has one.
func (o *Observer) imageName(ctx context.Context, id string) string {
	if found, err := o.engine.ImageInspect(ctx, id); err == nil && len(found.RepoTags) > 0 {
		return found.RepoTags[0]
	}
	return id
}
