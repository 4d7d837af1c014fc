package dockerrt

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/agbox-dev/agbox/dockerrt/copytree"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// copyTime bounds one copy: a tree of many gigabytes on a slow disk.
const copyTime = time.Hour

// copyIn puts the spec's copies into the primary, which was not started yet.
func (d *Docker) copyIn(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) error {
	for _, c := range spec.Copies {
		if err := d.copyTree(ctx, sandboxID, c); err != nil {
			return coded("SANDBOX_COPY_FAILED", "cannot copy %s to %s: %w", c.Source, c.Target, err)
		}
	}
	return nil
}

func (d *Docker) copyTree(ctx context.Context, sandboxID string, c *agboxv1.CopySpec) error {
	ctx, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	reader, writer := io.Pipe()
	streamed := make(chan error, 1)
	go func() {
		err := copytree.Stream(ctx, writer, c.Source, c.Target, c.ExcludePatterns)
		if errors.Is(err, copytree.ErrChanged) {
			d.log.Warn("files changed while they were copied", "sandbox_id", sandboxID, "source", c.Source, "error", err)
			err = nil
		}
		writer.CloseWithError(err)
		streamed <- err
	}()
	err := d.api.CopyToContainer(ctx, primaryName(sandboxID), "/", reader, container.CopyToContainerOptions{})
	reader.CloseWithError(errors.New("the engine reads no further"))
	if streamErr := <-streamed; err == nil {
		err = streamErr
	} else if cause, own := errors.AsType[*copytree.Error](streamErr); own {
		err = cause
	}
	return err
}
