package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
)

// A container inherits the labels of its image, and an image those of the container that it was committed from. So labels
// alone make no container ours: LabelImage must name the image that the container really has. No image can hold its own id, so
// what was made from an image that came out of one of our containers tells itself apart, whatever it is called, and ours is
// found under any name that somebody gives it.

// Ours reports whether a container with these labels and this image is one of this daemon's.
func (c *Client) Ours(labels map[string]string, imageID string) bool {
	return labels[LabelInstance] == c.owner.Instance && labels[LabelImage] == imageID
}

// Containers lists those of a sandbox, or of all with "", that are this daemon's: with all also those that do not run.
// Each further argument is the label that they have, as "key=value".
func (c *Client) Containers(ctx context.Context, sandboxID string, all bool, labels ...string) ([]container.Summary, error) {
	mine := c.Mine(sandboxID)
	for _, label := range labels {
		mine.Add("label", label)
	}
	list, err := c.ContainerList(ctx, container.ListOptions{All: all, Filters: mine})
	if err != nil {
		return nil, fmt.Errorf("cannot list containers: %w", err)
	}
	return slices.DeleteFunc(list, func(found container.Summary) bool { return !c.Ours(found.Labels, found.ImageID) }), nil
}

// Primary returns the id of the sandbox's primary container, under whatever name it goes by now. Without one it fails as the
// engine does for what is not there.
func (c *Client) Primary(ctx context.Context, sandboxID string) (string, error) {
	c.mu.Lock()
	id := c.primaries[c.placeLocked(sandboxID)]
	c.mu.Unlock()
	if id != "" {
		return id, nil
	}
	ctx, cancel := c.Read(ctx)
	defer cancel()
	found, err := c.Containers(ctx, sandboxID, true, LabelComponent+"="+ComponentPrimary)
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("container %s: %w", PrimaryName(sandboxID), errdefs.ErrNotFound)
	}
	c.SetPrimary(sandboxID, found[0].ID)
	return found[0].ID, nil
}

// InspectPrimary is Primary, and what the engine says of it.
func (c *Client) InspectPrimary(ctx context.Context, sandboxID string) (container.InspectResponse, error) {
	id, err := c.Primary(ctx, sandboxID)
	if err != nil {
		return container.InspectResponse{}, err
	}
	ctx, cancel := c.Read(ctx)
	defer cancel()
	return c.ContainerInspect(ctx, id)
}

// Foreign says whose an object is that has a name which we need, with what to do about that: it is never ours to remove, and
// may be another daemon's sandbox.
func Foreign(kind, name string, labels map[string]string) string {
	whose := "which no agboxd has made"
	if instance := labels[LabelInstance]; instance != "" && labels[LabelSandbox] != "" {
		whose = "which is part of sandbox " + labels[LabelSandbox] + " of another agboxd (instance " + instance + ")"
	}
	return fmt.Sprintf("%s %s, %s: choose another sandbox id", kind, name, whose)
}

// Mine selects what has this daemon's label, of one sandbox when an id is given.
func (c *Client) Mine(sandboxID string) filters.Args {
	args := filters.NewArgs(filters.Arg("label", LabelInstance+"="+c.owner.Instance))
	if sandboxID != "" {
		args.Add("label", LabelSandbox+"="+c.Place(sandboxID))
	}
	return args
}

// SetPrimary remembers the id of the sandbox's primary container; "" forgets it.
func (c *Client) SetPrimary(sandboxID, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == "" {
		delete(c.primaries, c.placeLocked(sandboxID))
		return
	}
	c.primaries[c.placeLocked(sandboxID)] = id
}
