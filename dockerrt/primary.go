package dockerrt

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	dockermount "github.com/docker/docker/api/types/mount"
	dockernetwork "github.com/docker/docker/api/types/network"
	"github.com/docker/go-connections/nat"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/layout"
	"github.com/agbox-dev/agbox/dockerrt/network"
	"github.com/agbox-dev/agbox/oplog"
	"github.com/agbox-dev/agbox/paths"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// initLogSize bounds what agbox-init may say on stderr; it is silent unless it cannot start.
const initLogSize = "1m"

func (d *Docker) createPrimary(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, image image.InspectResponse) (err error) {
	ctx, cancel := d.api.Write(ctx)
	defer cancel()
	config, host := d.primaryConfig(sandboxID, spec, image)
	mounts, err := json.Marshal(spec.Mounts)
	if err != nil {
		return err
	}
	config.Labels[engine.LabelMounts] = string(mounts)
	name := engine.PrimaryName(sandboxID)
	defer oplog.Step(ctx, "made", "container %s", name)(&err)
	made, err := d.api.ContainerCreate(ctx, config, host, &dockernetwork.NetworkingConfig{}, nil, name)
	if err != nil {
		return explained(fmt.Errorf("cannot create container %s: %w", name, err))
	}
	d.api.SetPrimary(sandboxID, made.ID)
	return nil
}

func (d *Docker) primaryConfig(sandboxID string, spec *agboxv1.CreateSpec, image image.InspectResponse) (*container.Config, *container.HostConfig) {
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
		"--image-user=" + imageUser, "--stop-grace=" + d.config.StopGrace.String()}
	if spec.User != "" {
		command = append(command, "--user="+spec.User)
	}
	if d.config.MaxOutput > 0 {
		command = append(command, "--max-output="+strconv.FormatUint(d.config.MaxOutput, 10))
	}
	if d.config.DiskHeadroom > 0 {
		command = append(command, "--disk-headroom="+strconv.FormatUint(d.config.DiskHeadroom, 10))
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
		Env:          d.environment(spec.Envs),
		WorkingDir:   engineWorkdir(spec, directory),
		Hostname:     spec.Hostname,
		Entrypoint:   append(command, "--"),
		Cmd:          slices.Concat(entrypoint, spec.Command),
		ExposedPorts: exposed,
		Labels:       d.api.ContainerLabels(sandboxID, engine.ComponentPrimary, "", spec.Labels, image),
		StopSignal:   "SIGTERM",
		// The image's own would run in here as root, on the engine's clock.
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	host := confine(spec)
	host.Runtime = spec.Runtime
	host.NetworkMode = "none"
	if network.Networked(spec) {
		host.NetworkMode = container.NetworkMode(engine.NetworkName(sandboxID))
	}
	host.DNS = d.networks.NameServers(spec.Network)
	host.Mounts = d.primaryMounts(sandboxID, spec)
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

func (d *Docker) environment(envs map[string]string) []string {
	return append(engine.Environ(envs), "HOST_UID="+strconv.Itoa(d.config.UID), "HOST_GID="+strconv.Itoa(d.config.GID))
}

func (d *Docker) primaryMounts(sandboxID string, spec *agboxv1.CreateSpec) []dockermount.Mount {
	bind := func(source, target string, readOnly bool) dockermount.Mount {
		return dockermount.Mount{Type: dockermount.TypeBind, Source: source, Target: target, ReadOnly: readOnly}
	}
	mounts := []dockermount.Mount{
		bind(d.guest, layout.GuestHome, true),
		bind(d.layout.Run(sandboxID), layout.RunTarget, true),
		// Read-only: agbox-init writes through descriptors that it was given, and nobody else may.
		bind(d.layout.Logs(sandboxID), layout.LogTarget, true),
	}
	if d.layout.Relayed(sandboxID) {
		mounts = nil
		for _, target := range []string{layout.GuestHome, layout.LogTarget} {
			mounts = append(mounts, dockermount.Mount{Type: dockermount.TypeVolume, Target: target, VolumeOptions: &dockermount.VolumeOptions{NoCopy: true}})
		}
	}
	mounts = append(mounts, d.mounts.List(sandboxID, spec)...)
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

// publishedPorts returns where the engine has published the primary's ports.
func (d *Docker) publishedPorts(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) ([]*agboxv1.PublishedPort, error) {
	if len(spec.Ports) == 0 {
		return nil, nil
	}
	found, err := d.api.InspectPrimary(ctx, sandboxID)
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

// removeContainers removes every container of the sandbox by force.
func (d *Docker) removeContainers(ctx context.Context, sandboxID string) error {
	containers, err := d.api.Containers(ctx, sandboxID, true)
	if err != nil {
		return err
	}
	for _, c := range containers {
		if err := d.removeContainer(ctx, c); err != nil {
			return err
		}
	}
	d.api.SetPrimary(sandboxID, "")
	return nil
}

func (d *Docker) removeContainer(ctx context.Context, c container.Summary) (err error) {
	name := strings.TrimPrefix(c.Names[0], "/")
	defer oplog.Step(ctx, "removed", "container %s", name)(&err)
	err = d.api.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !engine.IsNotFound(err) && !engine.RemovalInProgress(err) {
		return fmt.Errorf("cannot remove container %s: %w", name, err)
	}
	return nil
}
