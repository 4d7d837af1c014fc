package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/docker/docker/api/types/container"
)

// removals is how often a removal is tried that somebody else has under way and that fails for them.
const removals = 3

// RemoveContainer removes the container and its anonymous volumes by force. It returns once it is gone, whoever removes it, or with
// ctx's end. One that is not there is gone.
func (c *Client) RemoveContainer(ctx context.Context, id string) (err error) {
	for range removals {
		err = c.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		if IsNotFound(err) {
			return nil
		}
		if !removalInProgress(err) {
			return err
		}
		if err = c.awaitRemoval(ctx, id); err == nil {
			return nil
		}
	}
	return err
}

// awaitRemoval returns when the container is gone, or with why somebody's removal of it failed.
func (c *Client) awaitRemoval(ctx context.Context, id string) error {
	gone, failed := c.ContainerWait(ctx, id, container.WaitConditionRemoved)
	select {
	case result := <-gone:
		if result.Error != nil {
			return fmt.Errorf("container %s is not removed: %w", id, errors.New(result.Error.Message))
		}
		return nil
	case err := <-failed:
		if IsNotFound(err) {
			return nil
		}
		return err
	}
}

// ContainerName is what the engine calls the container, or its id where it has no name: while it is renamed or removed.
func ContainerName(c container.Summary) string {
	for _, name := range c.Names {
		if name = strings.TrimPrefix(name, "/"); name != "" && !strings.Contains(name, "/") { // one with a slash is a link's
			return name
		}
	}
	return c.ID[:min(len(c.ID), shortID)]
}

// shortID is how much of an id Docker's own tools show.
const shortID = 12
