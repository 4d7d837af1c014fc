package dockerrt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/docker/docker/api/types/container"
	"golang.org/x/sync/errgroup"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/oplog"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Pause implements runtime.Runtime. Agbox-init is told first, so that no timeout of an exec goes on.
func (d *Docker) Pause(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (err error) {
	ctx = d.oplogs.Begin(ctx, sandboxID, "pause", nil)
	defer oplog.Step(ctx, "paused", "sandbox")(&err)
	return engine.RetryTransient(ctx, func() error {
		ctx, cancel := d.api.Write(ctx)
		defer cancel()
		if err := d.freeze(ctx, sandboxID); err != nil {
			return errors.Join(err, d.thaw(ctx, sandboxID))
		}
		if alone(spec) { // which needs no list to be found
			id, err := d.api.Primary(ctx, sandboxID)
			if err == nil {
				err = d.paused(ctx, sandboxID, d.api.ContainerPause(ctx, id))
			}
			if err != nil {
				d.thawClocks(sandboxID)
			}
			return err
		}
		err := d.eachContainer(ctx, sandboxID, upOrPaused, d.api.ContainerPause, d.paused)
		if err != nil {
			err = errors.Join(err, d.thaw(ctx, sandboxID)) // all of it or nothing
		}
		return err
	})
}

// freeze has the clocks of agbox-init stand still. A daemon that died may have paused the container already, and its
// agbox-init had confirmed that before. One that cannot confirm it any more is not waited for.
func (d *Docker) freeze(ctx context.Context, sandboxID string) error {
	link, err := d.links.Running(sandboxID)
	if err != nil {
		return nil // there is no sandbox to pause, which the engine tells better
	}
	ctx, cancel := d.api.Read(ctx)
	defer cancel()
	if link.Disconnected() {
		if found, err := d.api.InspectPrimary(ctx, sandboxID); err == nil && found.State.Paused {
			link.AssumeFrozen()
			return nil
		}
	}
	id, err := d.api.Primary(ctx, sandboxID)
	if err != nil {
		return nil // which the engine tells as well
	}
	waiting, over := context.WithCancel(ctx)
	defer over()
	ended, _ := d.api.ContainerWait(waiting, id, container.WaitConditionNotRunning)
	frozen := make(chan error, 1)
	go func() { frozen <- link.Freeze(waiting) }()
	select {
	case err := <-frozen:
		return err
	case <-ended:
		over()
		<-frozen
		return backoff.Permanent(fmt.Errorf("container %s is not running", engine.PrimaryName(sandboxID)))
	}
}

// Unpause implements runtime.Runtime.
func (d *Docker) Unpause(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (err error) {
	ctx = d.oplogs.Begin(ctx, sandboxID, "unpause", nil)
	defer oplog.Step(ctx, "unpaused", "sandbox")(&err)
	return engine.RetryTransient(ctx, func() error {
		if !alone(spec) {
			return d.thawAll(ctx, sandboxID, upOrPaused, d.unpaused)
		}
		ctx, cancel := d.api.Write(ctx)
		defer cancel()
		id, err := d.api.Primary(ctx, sandboxID)
		if err == nil {
			err = d.unpaused(ctx, sandboxID, d.api.ContainerUnpause(ctx, id))
		}
		if err == nil {
			d.thawClocks(sandboxID)
		}
		return err
	})
}

// alone: the sandbox has no services.
func alone(spec *agboxv1.CreateSpec) bool {
	return len(spec.GetRequiredServices())+len(spec.GetOptionalServices()) == 0
}

// paused and unpaused drop an error by which the engine says that it is so already, unless agbox-init shows that it is
// not: an engine that hears late of what it did itself believes in the state before, for a moment (Docker 20.10).
func (d *Docker) paused(ctx context.Context, sandboxID string, err error) error {
	if err != nil && strings.Contains(err.Error(), "already paused") && !d.answers(ctx, sandboxID) {
		return nil
	}
	return err
}

func (d *Docker) unpaused(ctx context.Context, sandboxID string, err error) error {
	if err != nil && strings.Contains(err.Error(), "not paused") && d.answers(ctx, sandboxID) {
		return nil
	}
	return err
}

// answerTime is how long an agbox-init that runs takes at most to answer, on a machine that is busy.
const answerTime = time.Second

// answers reports whether the sandbox's agbox-init runs now.
func (d *Docker) answers(ctx context.Context, sandboxID string) bool {
	link, err := d.links.Running(sandboxID)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return link.Ping(ctx) == nil
}

// thaw lets the sandbox's frozen containers go on, as far as the engine knows of any, and the clocks of its agbox-init.
func (d *Docker) thaw(ctx context.Context, sandboxID string) error {
	return d.thawAll(ctx, sandboxID, []container.ContainerState{container.StatePaused}, func(_ context.Context, _ string, err error) error {
		if err != nil && strings.Contains(err.Error(), "not paused") {
			return nil
		}
		return err
	})
}

func (d *Docker) thawAll(ctx context.Context, sandboxID string, in []container.ContainerState, settled func(context.Context, string, error) error) error {
	err := d.eachContainer(ctx, sandboxID, in, d.api.ContainerUnpause, settled)
	if err == nil {
		d.thawClocks(sandboxID)
	}
	return err
}

// thawClocks lets agbox-init's clocks go on.
func (d *Docker) thawClocks(sandboxID string) {
	link := d.links.Find(sandboxID)
	if link != nil {
		link.Thaw()
	}
}

var upOrPaused = []container.ContainerState{container.StateRunning, container.StatePaused}

// eachContainer does something with every container of the sandbox in one of the states, all at the same time.
func (d *Docker) eachContainer(ctx context.Context, sandboxID string, in []container.ContainerState, do func(context.Context, string) error, settled func(context.Context, string, error) error) error {
	ctx, cancel := d.api.Write(ctx)
	defer cancel()
	list, err := d.api.Containers(ctx, sandboxID, true)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range list {
		if !slices.Contains(in, c.State) {
			continue
		}
		group.Go(func() error {
			if err := do(ctx, c.ID); !engine.IsNotFound(err) {
				return settled(ctx, sandboxID, err)
			}
			return nil
		})
	}
	return group.Wait()
}
