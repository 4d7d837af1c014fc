package dockerrt

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Where things are inside a sandbox.
const (
	initTarget = "/.agbox/init"
	runTarget  = "/.agbox/run"
	logTarget  = "/var/log/agents-sandbox"
	workdir    = "/workspace"
)

// droppedCapabilities are those of Docker's default set that let a sandbox forge packets or make device nodes.
var droppedCapabilities = []string{"NET_RAW", "MKNOD"}

const (
	pidsLimit = 4096
	// initLogSize bounds what agbox-init may say on stderr; it is silent unless it cannot start.
	initLogSize = "1m"
)

func (d *Docker) createPrimary(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, image imageConfig) error {
	ctx, cancel := d.write(ctx)
	defer cancel()
	config, host := d.primaryConfig(sandboxID, spec, image)
	name := primaryName(sandboxID)
	if _, err := d.api.ContainerCreate(ctx, config, host, &network.NetworkingConfig{}, nil, name); err != nil {
		return fmt.Errorf("cannot create container %s: %w", name, err)
	}
	return nil
}

func (d *Docker) primaryConfig(sandboxID string, spec *agboxv1.CreateSpec, image imageConfig) (*container.Config, *container.HostConfig) {
	command := []string{initTarget,
		"--socket=" + runTarget + "/s", "--workdir=" + workdir,
		"--image-user=" + image.user, "--stop-grace=" + d.config.StopGrace.String(), "--"}
	config := &container.Config{
		Image:      image.id,
		User:       "0:0", // agbox-init drops to the right user for each command
		Env:        d.environment(spec.Envs),
		WorkingDir: workdir,
		Entrypoint: command,
		Cmd:        image.entrypoint,
		Labels:     d.labels(sandboxID, componentPrimary, spec.Labels),
		StopSignal: "SIGTERM",
	}
	limit := int64(pidsLimit)
	host := &container.HostConfig{
		NetworkMode: container.NetworkMode(networkName(sandboxID)),
		Mounts:      d.primaryMounts(sandboxID, spec.Mounts),
		SecurityOpt: []string{"no-new-privileges"},
		CapDrop:     droppedCapabilities,
		LogConfig:   container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": initLogSize}},
		Resources: container.Resources{
			PidsLimit: &limit,
			Ulimits:   []*container.Ulimit{{Name: "core"}},
		},
	}
	return config, host
}

func (d *Docker) environment(envs map[string]string) []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(envs)) {
		list = append(list, key+"="+envs[key])
	}
	return append(list, "HOST_UID="+strconv.Itoa(d.config.UID), "HOST_GID="+strconv.Itoa(d.config.GID))
}

func (d *Docker) primaryMounts(sandboxID string, spec []*agboxv1.MountSpec) []mount.Mount {
	bind := func(source, target string, readOnly bool) mount.Mount {
		return mount.Mount{Type: mount.TypeBind, Source: source, Target: target, ReadOnly: readOnly}
	}
	mounts := []mount.Mount{
		bind(d.config.InitPath, initTarget, true),
		bind(d.layout.run(sandboxID), runTarget, true),
		// Read-only: agbox-init writes through descriptors that it was given, and nobody else may.
		bind(d.layout.logs(sandboxID), logTarget, true),
	}
	for _, m := range spec {
		mounts = append(mounts, bind(m.Source, m.Target, !m.Writable))
	}
	return mounts
}

// removeContainers removes every container of the sandbox by force.
func (d *Docker) removeContainers(ctx context.Context, sandboxID string) error {
	containers, err := d.api.ContainerList(ctx, container.ListOptions{All: true, Filters: d.mine(sandboxID)})
	if err != nil {
		return fmt.Errorf("cannot list containers: %w", err)
	}
	for _, c := range containers {
		err := d.api.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
		if err != nil && !isNotFound(err) && !removalInProgress(err) {
			return fmt.Errorf("cannot remove container %s: %w", c.Names[0], err)
		}
	}
	return nil
}
