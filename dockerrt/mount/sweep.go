package mount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	dockermount "github.com/docker/docker/api/types/mount"
	dockernetwork "github.com/docker/docker/api/types/network"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/guest/files/removal"
	"github.com/agbox-dev/agbox/oplog"
)

// sweepTarget is where the layers are in the container that empties them.
const sweepTarget = "/layers"

// sweepLayers removes the sandbox's layers. Where the daemon is not root, directories that root in the sandbox made are not its
// own to empty: then a container does that, of the oldest image, which somebody is the least likely to remove meanwhile, with our
// program and nothing else of the host.
func (ms *Mounts) sweepLayers(ctx context.Context, sandboxID string) error {
	err := removal.Tree(ms.layers(sandboxID))
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err := ms.emptyLayers(ctx, sandboxID); err != nil {
		return err
	}
	return removal.Tree(ms.layers(sandboxID))
}

func (ms *Mounts) emptyLayers(ctx context.Context, sandboxID string) (err error) {
	defer oplog.Step(ctx, "emptied", "layers")(&err)
	images, err := ms.engine.ImageList(ctx, image.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list images: %w", err)
	}
	if len(images) == 0 {
		return fmt.Errorf("what root wrote in %s cannot be removed without any image on the engine: remove it as root", ms.layers(sandboxID))
	}
	labels := ms.engine.Labels(sandboxID, engine.ComponentLayer, nil)
	labels[engine.LabelService] = sweepTarget // no service has such a name, and the primary has none
	created, err := ms.engine.ContainerCreate(ctx, &container.Config{
		Image: images[len(images)-1].ID, User: "0:0", Entrypoint: []string{ms.config.Init, "empty", sweepTarget}, Cmd: []string{}, Labels: labels,
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}, &container.HostConfig{
		NetworkMode: "none", ReadonlyRootfs: true, SecurityOpt: []string{"no-new-privileges"},
		CapDrop: []string{"ALL"}, CapAdd: []string{"DAC_OVERRIDE", "FOWNER"},
		Mounts: []dockermount.Mount{
			{Type: dockermount.TypeBind, Source: ms.config.InitPath, Target: ms.config.Init, ReadOnly: true},
			{Type: dockermount.TypeBind, Source: ms.layers(sandboxID), Target: sweepTarget},
		},
	}, &dockernetwork.NetworkingConfig{}, nil, "")
	if err != nil {
		return fmt.Errorf("cannot create a container that removes what root wrote: %w", err)
	}
	defer func() {
		err = errors.Join(err, ms.engine.ContainerRemove(context.WithoutCancel(ctx), created.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
	}()
	ended, failed := ms.engine.ContainerWait(ctx, created.ID, container.WaitConditionNextExit)
	if err := ms.engine.ContainerStart(ctx, created.ID, container.StartOptions{}); err != nil {
		return fmt.Errorf("cannot start a container that removes what root wrote: %w", err)
	}
	select {
	case end := <-ended:
		if end.StatusCode != 0 {
			return fmt.Errorf("what root wrote in %s cannot be removed: %s", ms.layers(sandboxID), ms.engine.Tail(ctx, created.ID, ""))
		}
		return nil
	case err := <-failed:
		return fmt.Errorf("a container that removes what root wrote: %w", err)
	}
}
