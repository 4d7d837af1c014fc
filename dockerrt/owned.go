package dockerrt

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
)

// A container inherits the labels of its image, and an image those of the container that it was committed from. So labels
// alone make no container ours: labelImage must name the image that the container really has. No image can hold its own id, so
// what was made from an image that came out of one of our containers tells itself apart, whatever it is called, and ours is
// found under any name that somebody gives it.

// ours reports whether a container with these labels and this image is one of this daemon's.
func (d *Docker) ours(labels map[string]string, imageID string) bool {
	return labels[labelInstance] == d.config.Instance && labels[labelImage] == imageID
}

// containers lists those of a sandbox, or of all with "", that are this daemon's: with all also those that do not run.
// Each further argument is the label that they have, as "key=value".
func (d *Docker) containers(ctx context.Context, sandboxID string, all bool, labels ...string) ([]container.Summary, error) {
	mine := d.mine(sandboxID)
	for _, label := range labels {
		mine.Add("label", label)
	}
	list, err := d.api.ContainerList(ctx, container.ListOptions{All: all, Filters: mine})
	if err != nil {
		return nil, fmt.Errorf("cannot list containers: %w", err)
	}
	return slices.DeleteFunc(list, func(c container.Summary) bool { return !d.ours(c.Labels, c.ImageID) }), nil
}

// primary returns the id of the sandbox's primary container, under whatever name it goes by now. Without one it fails as the
// engine does for what is not there.
func (d *Docker) primary(ctx context.Context, sandboxID string) (string, error) {
	d.primaries.mu.Lock()
	id := d.primaries.ids[sandboxID]
	d.primaries.mu.Unlock()
	if id != "" {
		return id, nil
	}
	ctx, cancel := d.read(ctx)
	defer cancel()
	found, err := d.containers(ctx, sandboxID, true, labelComponent+"="+componentPrimary)
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("container %s: %w", primaryName(sandboxID), errdefs.ErrNotFound)
	}
	d.primaries.set(sandboxID, found[0].ID)
	return found[0].ID, nil
}

// inspectPrimary is primary, and what the engine says of it.
func (d *Docker) inspectPrimary(ctx context.Context, sandboxID string) (container.InspectResponse, error) {
	id, err := d.primary(ctx, sandboxID)
	if err != nil {
		return container.InspectResponse{}, err
	}
	ctx, cancel := d.read(ctx)
	defer cancel()
	return d.api.ContainerInspect(ctx, id)
}

// foreign says whose an object is that has a name which we need, with what to do about that: it is never ours to remove, and
// may be another daemon's sandbox.
func foreign(kind, name string, labels map[string]string) string {
	whose := "which no agboxd has made"
	if instance := labels[labelInstance]; instance != "" && labels[labelSandbox] != "" {
		whose = "which is part of sandbox " + labels[labelSandbox] + " of another agboxd (instance " + instance + ")"
	}
	return fmt.Sprintf("%s %s, %s: choose another sandbox id", kind, name, whose)
}

// mine selects what has this daemon's label, of one sandbox when an id is given.
func (d *Docker) mine(sandboxID string) filters.Args {
	args := filters.NewArgs(filters.Arg("label", labelInstance+"="+d.config.Instance))
	if sandboxID != "" {
		args.Add("label", labelSandbox+"="+sandboxID)
	}
	return args
}

// primaries are the primary containers by sandbox, as far as they were looked for.
type primaries struct {
	mu  sync.Mutex
	ids map[string]string
}

// set remembers the id; "" forgets it.
func (p *primaries) set(sandboxID, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id == "" {
		delete(p.ids, sandboxID)
		return
	}
	p.ids[sandboxID] = id
}
