package dockerrt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/docker/docker/api/types/container"
	"golang.org/x/sync/errgroup"
)

// Pause implements actors.Runtime. Agbox-init is told first, so that no timeout of an exec goes on.
func (d *Docker) Pause(ctx context.Context, sandboxID string) error {
	return reached(passing(ctx, func() error {
		if link, err := d.running(sandboxID); err == nil {
			freezing, cancel := d.read(ctx)
			err = link.Freeze(freezing)
			cancel()
			if err != nil {
				link.Thaw()
				return err
			}
		}
		err := d.eachContainer(ctx, sandboxID, container.StateRunning, "paused", d.api.ContainerPause)
		if err != nil {
			err = errors.Join(err, d.thaw(ctx, sandboxID)) // all of it or nothing
		}
		return err
	}))
}

// Unpause implements actors.Runtime.
func (d *Docker) Unpause(ctx context.Context, sandboxID string) error {
	return reached(passing(ctx, func() error { return d.thaw(ctx, sandboxID) }))
}

// thaw lets the sandbox's frozen containers go on, and the clocks of its agbox-init.
func (d *Docker) thaw(ctx context.Context, sandboxID string) error {
	err := d.eachContainer(ctx, sandboxID, container.StatePaused, "not paused", d.api.ContainerUnpause)
	d.links.mu.Lock()
	link := d.links.open[sandboxID]
	d.links.mu.Unlock()
	if link != nil && err == nil {
		link.Thaw()
	}
	return err
}

// eachContainer does something with every container of the sandbox in a state, all at the same time. Those that say
// that it is done already do not matter.
func (d *Docker) eachContainer(ctx context.Context, sandboxID string, state container.ContainerState, done string, do func(context.Context, string) error) error {
	mine := d.mine(sandboxID)
	mine.Add("status", state)
	ctx, cancel := d.write(ctx)
	defer cancel()
	list, err := d.api.ContainerList(ctx, container.ListOptions{All: true, Filters: mine})
	if err != nil {
		return fmt.Errorf("cannot list containers: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range list {
		group.Go(func() error {
			err := do(ctx, c.ID)
			if err != nil && (isNotFound(err) || strings.Contains(err.Error(), done)) {
				return nil
			}
			return err
		})
	}
	return group.Wait()
}
