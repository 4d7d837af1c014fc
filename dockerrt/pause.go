package dockerrt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/docker/docker/api/types/container"
	"golang.org/x/sync/errgroup"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Pause implements actors.Runtime. Agbox-init is told first, so that no timeout of an exec goes on.
func (d *Docker) Pause(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) error {
	return reached(passing(ctx, func() error {
		ctx, cancel := d.write(ctx)
		defer cancel()
		if link, err := d.running(sandboxID); err == nil {
			freezing, cancel := d.read(ctx)
			err = link.Freeze(freezing)
			cancel()
			if err != nil {
				link.Thaw()
				return err
			}
		}
		if alone(spec) { // which needs no list to be found
			err := done(d.api.ContainerPause(ctx, primaryName(sandboxID)), "already paused")
			if err != nil {
				d.tellThawed(sandboxID)
			}
			return err
		}
		err := d.eachContainer(ctx, sandboxID, container.StateRunning, "already paused", d.api.ContainerPause)
		if err != nil {
			err = errors.Join(err, d.thaw(ctx, sandboxID)) // all of it or nothing
		}
		return err
	}))
}

// Unpause implements actors.Runtime.
func (d *Docker) Unpause(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) error {
	return reached(passing(ctx, func() error {
		if !alone(spec) {
			return d.thaw(ctx, sandboxID)
		}
		ctx, cancel := d.write(ctx)
		defer cancel()
		err := done(d.api.ContainerUnpause(ctx, primaryName(sandboxID)), "not paused")
		if err == nil {
			d.tellThawed(sandboxID)
		}
		return err
	}))
}

// alone: the sandbox has no services.
func alone(spec *agboxv1.CreateSpec) bool {
	return len(spec.GetRequiredServices())+len(spec.GetOptionalServices()) == 0
}

// done drops an error that says that what was asked for is so already.
func done(err error, already string) error {
	if err != nil && strings.Contains(err.Error(), already) {
		return nil
	}
	return err
}

// thaw lets the sandbox's frozen containers go on, and the clocks of its agbox-init.
func (d *Docker) thaw(ctx context.Context, sandboxID string) error {
	err := d.eachContainer(ctx, sandboxID, container.StatePaused, "not paused", d.api.ContainerUnpause)
	if err == nil {
		d.tellThawed(sandboxID)
	}
	return err
}

// tellThawed lets agbox-init's clocks go on.
func (d *Docker) tellThawed(sandboxID string) {
	d.links.mu.Lock()
	link := d.links.open[sandboxID]
	d.links.mu.Unlock()
	if link != nil {
		link.Thaw()
	}
}

// eachContainer does something with every container of the sandbox in a state, all at the same time. Those that say
// that it is done already do not matter.
func (d *Docker) eachContainer(ctx context.Context, sandboxID string, state container.ContainerState, already string, do func(context.Context, string) error) error {
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
			if err := do(ctx, c.ID); !isNotFound(err) {
				return done(err, already)
			}
			return nil
		})
	}
	return group.Wait()
}
