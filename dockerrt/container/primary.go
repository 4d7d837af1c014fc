package container

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	dockermount "github.com/docker/docker/api/types/mount"
	dockernetwork "github.com/docker/docker/api/types/network"
	"github.com/docker/go-connections/nat"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/layout"
	"github.com/agbox-dev/agbox/dockerrt/network"
	"github.com/agbox-dev/agbox/oplog"
	"github.com/agbox-dev/agbox/paths"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// initLogSize bounds what agbox-init may say on stderr; it is silent unless it cannot start.
const initLogSize = "1m"

// CreatePrimary makes the container, which then waits for StartPrimary.
func (cs *Containers) CreatePrimary(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, image image.InspectResponse) (err error) {
	ctx, cancel := cs.engine.Write(ctx)
	defer cancel()
	config, host := cs.primaryConfig(sandboxID, spec, image)
	mounts, err := json.Marshal(spec.Mounts)
	if err != nil {
		return err
	}
	config.Labels[engine.LabelMounts] = string(mounts)
	if cs.networks.Claimed(sandboxID) && spec.Network != nil { // the network itself cannot say so
		if config.Labels[engine.LabelNetwork], err = network.Label(spec); err != nil {
			return err
		}
	}
	if runtime.IsPlace(sandboxID) {
		template, err := protojson.Marshal(spec)
		if err != nil {
			return err
		}
		config.Labels[engine.LabelTemplate] = string(template)
		config.Labels[engine.LabelMade] = cs.Made(sandboxID, spec, image)
	}
	name := engine.PrimaryName(sandboxID)
	defer oplog.Step(ctx, "made", "container %s", name)(&err)
	made, err := cs.engine.ContainerCreate(ctx, config, host, &dockernetwork.NetworkingConfig{}, nil, name)
	if err != nil {
		return Explained(fmt.Errorf("cannot create container %s: %w", name, err))
	}
	cs.engine.SetPrimary(sandboxID, made.ID)
	return nil
}

func (cs *Containers) primaryConfig(sandboxID string, spec *agboxv1.CreateSpec, image image.InspectResponse) (*container.Config, *container.HostConfig) {
	var imageUser string
	var entrypoint []string
	if image.Config != nil {
		imageUser, entrypoint = image.Config.User, image.Config.Entrypoint
	}
	directory := layout.Workdir
	if spec.WorkingDir != "" {
		directory = spec.WorkingDir
	}
	command := []string{layout.InitTarget,
		"--socket=" + layout.InitSocket, "--workdir=" + directory,
		"--image-user=" + imageUser, "--stop-grace=" + cs.config.StopGrace.String()}
	if spec.User != "" {
		command = append(command, "--user="+spec.User)
	}
	if cs.config.MaxOutput > 0 {
		command = append(command, "--max-output="+strconv.FormatUint(cs.config.MaxOutput, 10))
	}
	if cs.config.DiskHeadroom > 0 {
		command = append(command, "--disk-headroom="+strconv.FormatUint(cs.config.DiskHeadroom, 10))
	}
	if ownWorkspace(spec) || inMemory(spec, layout.Workdir) {
		command = append(command, "--own-workspace")
	}
	for _, t := range spec.Tmpfs {
		command = append(command, "--tmpfs="+t.Target)
	}
	if len(spec.Command) > 0 {
		command = append(command, "--entrypoint-words="+strconv.Itoa(len(entrypoint)))
	}
	exposed, bindings := published(spec.Ports)
	config := &container.Config{
		Image:        image.ID,
		User:         "0:0", // agbox-init drops to the right user for each command
		Env:          cs.Environment(spec.Envs),
		WorkingDir:   engineWorkdir(spec, directory),
		Hostname:     spec.Hostname,
		Entrypoint:   append(command, "--"),
		Cmd:          slices.Concat(entrypoint, spec.Command),
		ExposedPorts: exposed,
		Labels:       cs.engine.ContainerLabels(sandboxID, engine.ComponentPrimary, "", spec.Labels, image),
		StopSignal:   "SIGTERM",
		// The image's own would run in here as root, on the engine's clock.
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	host := Confine(spec)
	host.Runtime = spec.Runtime
	host.NetworkMode = "none"
	if network.Networked(spec) {
		host.NetworkMode = container.NetworkMode(cs.networks.Name(sandboxID))
	}
	host.DNS = cs.networks.NameServers(spec.Network)
	host.Mounts = cs.primaryMounts(sandboxID, spec)
	host.LogConfig = container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": initLogSize}}
	host.PortBindings = bindings
	host.DeviceRequests = devices(spec.Gpus)
	host.ReadonlyRootfs = spec.ReadOnlyRoot
	for _, name := range slices.Sorted(maps.Keys(spec.ExtraHosts)) {
		host.ExtraHosts = append(host.ExtraHosts, name+":"+spec.ExtraHosts[name])
	}
	if spec.AllowNewPrivileges {
		host.SecurityOpt = nil
	}
	return config, host
}

// engineWorkdir is where the engine starts agbox-init, which needs no such place. The engine would make it as the host's root
// before anybody has seen what is mounted there, so that agbox-init makes directory instead, unless only the engine can.
func engineWorkdir(spec *agboxv1.CreateSpec, directory string) string {
	mounted := func(m *agboxv1.MountSpec) bool { return paths.Within(directory, m.Target) }
	if !spec.ReadOnlyRoot || slices.ContainsFunc(spec.Mounts, mounted) {
		return "/"
	}
	return directory
}

// Environment is what the sandbox's processes get of variables: the spec's, and the owner of this host's files.
func (cs *Containers) Environment(envs map[string]string) []string {
	return append(engine.Environ(envs), "HOST_UID="+strconv.Itoa(cs.config.UID), "HOST_GID="+strconv.Itoa(cs.config.GID))
}

func (cs *Containers) primaryMounts(sandboxID string, spec *agboxv1.CreateSpec) []dockermount.Mount {
	bind := func(source, target string, readOnly bool) dockermount.Mount {
		return dockermount.Mount{Type: dockermount.TypeBind, Source: source, Target: target, ReadOnly: readOnly}
	}
	mounts := []dockermount.Mount{
		bind(cs.config.Guest, layout.GuestHome, true),
		bind(cs.layout.Run(sandboxID), layout.RunTarget, true),
		// Read-only: agbox-init writes through descriptors that it was given, and nobody else may.
		bind(cs.layout.Logs(sandboxID), layout.LogTarget, true),
	}
	if cs.layout.Relayed(sandboxID) {
		mounts = nil
		for _, target := range []string{layout.GuestHome, layout.LogTarget} {
			mounts = append(mounts, dockermount.Mount{Type: dockermount.TypeVolume, Target: target, VolumeOptions: &dockermount.VolumeOptions{NoCopy: true}})
		}
	}
	mounts = append(mounts, cs.mounts.List(sandboxID, spec)...)
	if ownWorkspace(spec) {
		mounts = append(mounts, dockermount.Mount{Type: dockermount.TypeVolume, Target: layout.Workdir})
	}
	return mounts
}

// ownWorkspace reports whether /workspace needs a volume: beside a root that is read-only, where nothing else is there.
// The volume has no name, and goes with the container.
func ownWorkspace(spec *agboxv1.CreateSpec) bool {
	return spec.ReadOnlyRoot &&
		!slices.ContainsFunc(spec.Mounts, func(m *agboxv1.MountSpec) bool { return m.Target == layout.Workdir }) &&
		!inMemory(spec, layout.Workdir)
}

func inMemory(spec *agboxv1.CreateSpec, target string) bool {
	return slices.ContainsFunc(spec.Tmpfs, func(t *agboxv1.TmpfsSpec) bool { return t.Target == target })
}

func published(ports []*agboxv1.PortSpec) (nat.PortSet, nat.PortMap) {
	if len(ports) == 0 {
		return nil, nil
	}
	exposed, bindings := nat.PortSet{}, nat.PortMap{}
	for _, p := range ports {
		port := nat.Port(fmt.Sprintf("%d/%s", p.ContainerPort, p.Protocol))
		exposed[port] = struct{}{}
		bindings[port] = append(bindings[port], nat.PortBinding{HostIP: p.HostIp, HostPort: strconv.Itoa(int(p.HostPort))})
	}
	return exposed, bindings
}

// PublishedPorts returns where the engine has published the primary's ports.
func (cs *Containers) PublishedPorts(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) ([]*agboxv1.PublishedPort, error) {
	if len(spec.Ports) == 0 {
		return nil, nil
	}
	found, err := cs.engine.InspectPrimary(ctx, sandboxID)
	if err != nil {
		return nil, err
	}
	var list []*agboxv1.PublishedPort
	for _, port := range slices.Sorted(maps.Keys(found.NetworkSettings.Ports)) {
		for _, binding := range found.NetworkSettings.Ports[port] {
			host, err := strconv.ParseUint(binding.HostPort, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("the engine published %s at port %q: %w", port, binding.HostPort, err)
			}
			list = append(list, &agboxv1.PublishedPort{
				ContainerPort: uint32(port.Int()), HostPort: uint32(host), HostIp: binding.HostIP, Protocol: port.Proto(),
			})
		}
	}
	return list, nil
}

// RemoveContainers removes every container of the sandbox by force.
func (cs *Containers) RemoveContainers(ctx context.Context, sandboxID string) error {
	containers, err := cs.engine.Containers(ctx, sandboxID, true)
	if err != nil {
		return err
	}
	for _, c := range containers {
		if err := cs.removeContainer(ctx, c); err != nil {
			return err
		}
	}
	cs.engine.SetPrimary(sandboxID, "")
	return nil
}

func (cs *Containers) removeContainer(ctx context.Context, c container.Summary) (err error) {
	name := engine.ContainerName(c)
	defer oplog.Step(ctx, "removed", "container %s", name)(&err)
	if err := cs.engine.RemoveContainer(ctx, c.ID); err != nil {
		return fmt.Errorf("cannot remove container %s: %w", name, err)
	}
	return nil
}
