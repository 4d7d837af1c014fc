package dockerrt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	dockernetwork "github.com/docker/docker/api/types/network"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/oplog"
)

// sweepTarget is where the layers are in the container that empties them.
const sweepTarget = "/layers"

// sweepLayers removes the sandbox's layers. Where the daemon is not root, directories that root in the sandbox made are not its
// own to empty: then a container does that, of the oldest image, which somebody is the least likely to remove meanwhile, with our
// program and nothing else of the host.
func (d *Docker) sweepLayers(ctx context.Context, sandboxID string) error {
	err := d.layout.removeLayers(sandboxID)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err := d.emptyLayers(ctx, sandboxID); err != nil {
		return err
	}
	return d.layout.removeLayers(sandboxID)
}

func (d *Docker) emptyLayers(ctx context.Context, sandboxID string) (err error) {
	defer oplog.Step(ctx, "emptied", "layers")(&err)
	images, err := d.api.ImageList(ctx, image.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list images: %w", err)
	}
	if len(images) == 0 {
		return fmt.Errorf("what root wrote in %s cannot be removed without any image on the engine: remove it as root", d.layout.layers(sandboxID))
	}
	labels := d.api.Labels(sandboxID, engine.ComponentLayer, nil)
	labels[engine.LabelService] = sweepTarget // no service has such a name, and the primary has none
	created, err := d.api.ContainerCreate(ctx, &container.Config{
		Image: images[len(images)-1].ID, User: "0:0", Entrypoint: []string{initTarget, "empty", sweepTarget}, Cmd: []string{}, Labels: labels,
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}, &container.HostConfig{
		NetworkMode: "none", ReadonlyRootfs: true, SecurityOpt: []string{"no-new-privileges"},
		CapDrop: []string{"ALL"}, CapAdd: []string{"DAC_OVERRIDE", "FOWNER"},
		Mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: d.config.InitPath, Target: initTarget, ReadOnly: true},
			{Type: mount.TypeBind, Source: d.layout.layers(sandboxID), Target: sweepTarget},
		},
	}, &dockernetwork.NetworkingConfig{}, nil, "")
	if err != nil {
		return fmt.Errorf("cannot create a container that removes what root wrote: %w", err)
	}
	defer func() {
		err = errors.Join(err, d.api.ContainerRemove(context.WithoutCancel(ctx), created.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
	}()
	ended, failed := d.api.ContainerWait(ctx, created.ID, container.WaitConditionNextExit)
	if err := d.api.ContainerStart(ctx, created.ID, container.StartOptions{}); err != nil {
		return fmt.Errorf("cannot start a container that removes what root wrote: %w", err)
	}
	select {
	case end := <-ended:
		if end.StatusCode != 0 {
			return fmt.Errorf("what root wrote in %s cannot be removed: %s", d.layout.layers(sandboxID), d.containerTail(ctx, created.ID, ""))
		}
		return nil
	case err := <-failed:
		return fmt.Errorf("a container that removes what root wrote: %w", err)
	}
}
