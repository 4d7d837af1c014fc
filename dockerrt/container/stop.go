package container

import (
	"context"
	"fmt"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/oplog"
)

// StopPrimary stops the primary, by agbox-init where that is there, and closes the way to it. It fails with engine.ErrMissing.
func (cs *Containers) StopPrimary(ctx context.Context, sandboxID string, grace time.Duration) (err error) {
	name := engine.PrimaryName(sandboxID)
	defer oplog.Step(ctx, "stopped", "container %s", name)(&err)
	if !cs.stopByInit(ctx, sandboxID, grace) {
		seconds := int(stopSlack / time.Second)
		id, err := cs.engine.Primary(ctx, sandboxID)
		if err == nil {
			err = cs.engine.ContainerStop(ctx, id, container.StopOptions{Timeout: &seconds})
		}
		if engine.IsNotFound(err) {
			return engine.Coded("SANDBOX_RUNTIME_CORRUPT", "%w: container %s: delete the sandbox", engine.ErrMissing, name)
		} else if err != nil {
			return fmt.Errorf("cannot stop container %s: %w", name, err)
		}
	}
	cs.links.Gather(ctx, sandboxID)
	cs.links.Drop(sandboxID)
	return nil
}

// stopSlack is what agbox-init gets beyond the grace to end by itself.
const stopSlack = 2 * time.Second

// stopByInit reports whether the container ended because its init was asked to.
func (cs *Containers) stopByInit(ctx context.Context, sandboxID string, grace time.Duration) bool {
	link, err := cs.links.Running(sandboxID)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, grace+stopSlack)
	defer cancel()
	id, err := cs.engine.Primary(ctx, sandboxID)
	if err != nil {
		return false
	}
	ended, errs := cs.engine.ContainerWait(ctx, id, container.WaitConditionNotRunning)
	asked := make(chan error, 1)
	go func() { asked <- link.Stop(ctx, grace) }()
	defer func() { cancel(); <-asked }()
	select {
	case <-ended:
		return true
	case <-errs:
		return false
	}
}
