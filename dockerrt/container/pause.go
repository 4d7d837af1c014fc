package container

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
func (cs *Containers) Pause(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (err error) {
	ctx = cs.oplogs.Begin(ctx, sandboxID, "pause", nil)
	defer oplog.Step(ctx, "paused", "sandbox")(&err)
	return engine.RetryTransient(ctx, func() error {
		ctx, cancel := cs.engine.Write(ctx)
		defer cancel()
		if err := cs.Freeze(ctx, sandboxID); err != nil {
			return errors.Join(err, cs.Thaw(ctx, sandboxID))
		}
		if Alone(spec) { // which needs no list to be found
			id, err := cs.engine.Primary(ctx, sandboxID)
			if err == nil {
				err = cs.paused(ctx, sandboxID, cs.engine.ContainerPause(ctx, id))
			}
			if err != nil {
				cs.ThawClocks(sandboxID)
			}
			return err
		}
		err := cs.eachContainer(ctx, sandboxID, upOrPaused, cs.engine.ContainerPause, cs.paused)
		if err != nil {
			err = errors.Join(err, cs.Thaw(ctx, sandboxID)) // all of it or nothing
		}
		return err
	})
}

// Freeze has the clocks of agbox-init stand still. A daemon that died may have paused the container already, and its
// agbox-init had confirmed that before. One that cannot confirm it any more is not waited for.
func (cs *Containers) Freeze(ctx context.Context, sandboxID string) error {
	link, err := cs.links.Running(sandboxID)
	if err != nil {
		return nil // there is no sandbox to pause, which the engine tells better
	}
	ctx, cancel := cs.engine.Read(ctx)
	defer cancel()
	if link.Disconnected() {
		if found, err := cs.engine.InspectPrimary(ctx, sandboxID); err == nil && found.State.Paused {
			link.AssumeFrozen()
			return nil
		}
	}
	id, err := cs.engine.Primary(ctx, sandboxID)
	if err != nil {
		return nil // which the engine tells as well
	}
	waiting, over := context.WithCancel(ctx)
	defer over()
	ended, _ := cs.engine.ContainerWait(waiting, id, container.WaitConditionNotRunning)
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
func (cs *Containers) Unpause(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (err error) {
	ctx = cs.oplogs.Begin(ctx, sandboxID, "unpause", nil)
	defer oplog.Step(ctx, "unpaused", "sandbox")(&err)
	return engine.RetryTransient(ctx, func() error {
		if !Alone(spec) {
			return cs.thawAll(ctx, sandboxID, upOrPaused, cs.unpaused)
		}
		ctx, cancel := cs.engine.Write(ctx)
		defer cancel()
		id, err := cs.engine.Primary(ctx, sandboxID)
		if err == nil {
			err = cs.unpaused(ctx, sandboxID, cs.engine.ContainerUnpause(ctx, id))
		}
		if err == nil {
			cs.ThawClocks(sandboxID)
		}
		return err
	})
}

// Alone: the sandbox has no services.
func Alone(spec *agboxv1.CreateSpec) bool {
	return len(spec.GetRequiredServices())+len(spec.GetOptionalServices()) == 0
}

// paused and unpaused drop an error by which the engine says that it is so already, unless agbox-init shows that it is
// not: an engine that hears late of what it did itself believes in the state before, for a moment (Docker 20.10).
func (cs *Containers) paused(ctx context.Context, sandboxID string, err error) error {
	if err != nil && strings.Contains(err.Error(), "already paused") && !cs.answers(ctx, sandboxID) {
		return nil
	}
	return err
}

func (cs *Containers) unpaused(ctx context.Context, sandboxID string, err error) error {
	if err != nil && strings.Contains(err.Error(), "not paused") && cs.answers(ctx, sandboxID) {
		return nil
	}
	return err
}

// answerTime is how long an agbox-init that runs takes at most to answer, on a machine that is busy.
const answerTime = time.Second

// answers reports whether the sandbox's agbox-init runs now.
func (cs *Containers) answers(ctx context.Context, sandboxID string) bool {
	link, err := cs.links.Running(sandboxID)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return link.Ping(ctx) == nil
}

// Thaw lets the sandbox's frozen containers go on, as far as the engine knows of any, and the clocks of its agbox-init.
func (cs *Containers) Thaw(ctx context.Context, sandboxID string) error {
	return cs.thawAll(ctx, sandboxID, []container.ContainerState{container.StatePaused}, func(_ context.Context, _ string, err error) error {
		if err != nil && strings.Contains(err.Error(), "not paused") {
			return nil
		}
		return err
	})
}

func (cs *Containers) thawAll(ctx context.Context, sandboxID string, in []container.ContainerState, settled func(context.Context, string, error) error) error {
	err := cs.eachContainer(ctx, sandboxID, in, cs.engine.ContainerUnpause, settled)
	if err == nil {
		cs.ThawClocks(sandboxID)
	}
	return err
}

// ThawClocks lets agbox-init's clocks go on.
func (cs *Containers) ThawClocks(sandboxID string) {
	link := cs.links.Find(sandboxID)
	if link != nil {
		link.Thaw()
	}
}

var upOrPaused = []container.ContainerState{container.StateRunning, container.StatePaused}

// eachContainer does something with every container of the sandbox in one of the states, all at the same time.
func (cs *Containers) eachContainer(ctx context.Context, sandboxID string, in []container.ContainerState, do func(context.Context, string) error, settled func(context.Context, string, error) error) error {
	ctx, cancel := cs.engine.Write(ctx)
	defer cancel()
	list, err := cs.engine.Containers(ctx, sandboxID, true)
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
