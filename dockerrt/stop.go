package dockerrt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/oplog"
)

// Stop implements runtime.Runtime. It asks agbox-init, which ends everything and then itself: that spares Docker's own
// way to a process, a quarter of the time that a kill takes. Docker stops the container when that does not help, and the
// services, which the primary may need until then.
func (d *Docker) Stop(ctx context.Context, sandboxID string, grace *time.Duration) (err error) {
	ctx = d.oplogs.Begin(ctx, sandboxID, "stop", nil)
	defer oplog.Step(ctx, "stopped", "sandbox")(&err)
	patience := d.config.StopGrace
	if grace != nil {
		patience = *grace
	}
	return engine.RetryTransient(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, engine.WriteTimeout+patience)
		defer cancel()
		if err := d.thaw(ctx, sandboxID); err != nil {
			return err
		}
		if err := d.stopPrimary(ctx, sandboxID, patience); err != nil {
			return err
		}
		return d.stopServices(ctx, sandboxID, patience)
	})
}

// Halt implements runtime.Runtime.
func (d *Docker) Halt(ctx context.Context, sandboxID string) (err error) {
	ctx = d.oplogs.Begin(ctx, sandboxID, "halt", nil)
	defer oplog.Step(ctx, "stopped", "sandbox")(&err)
	return engine.RetryTransient(ctx, func() error {
		ctx, cancel := d.api.Write(ctx)
		defer cancel()
		if err := d.thaw(ctx, sandboxID); err != nil {
			return err
		}
		services := make(chan error, 1)
		go func() { services <- d.stopServices(ctx, sandboxID, 0) }()
		err := d.stopPrimary(ctx, sandboxID, 0)
		if errors.Is(err, engine.ErrMissing) {
			err = nil
		}
		return errors.Join(err, <-services)
	})
}

func (d *Docker) stopPrimary(ctx context.Context, sandboxID string, grace time.Duration) (err error) {
	name := engine.PrimaryName(sandboxID)
	defer oplog.Step(ctx, "stopped", "container %s", name)(&err)
	if !d.stopByInit(ctx, sandboxID, grace) {
		seconds := int(stopSlack / time.Second)
		id, err := d.api.Primary(ctx, sandboxID)
		if err == nil {
			err = d.api.ContainerStop(ctx, id, container.StopOptions{Timeout: &seconds})
		}
		if engine.IsNotFound(err) {
			return engine.Coded("SANDBOX_RUNTIME_CORRUPT", "%w: container %s: delete the sandbox", engine.ErrMissing, name)
		} else if err != nil {
			return fmt.Errorf("cannot stop container %s: %w", name, err)
		}
	}
	d.links.Gather(ctx, sandboxID)
	d.links.Drop(sandboxID)
	return nil
}

// stopSlack is what agbox-init gets beyond the grace to end by itself.
const stopSlack = 2 * time.Second

// stopByInit reports whether the container ended because its init was asked to.
func (d *Docker) stopByInit(ctx context.Context, sandboxID string, grace time.Duration) bool {
	link, err := d.links.Running(sandboxID)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, grace+stopSlack)
	defer cancel()
	id, err := d.api.Primary(ctx, sandboxID)
	if err != nil {
		return false
	}
	ended, errs := d.api.ContainerWait(ctx, id, container.WaitConditionNotRunning)
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
