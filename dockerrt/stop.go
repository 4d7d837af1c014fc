package dockerrt

import (
	"context"
	"errors"
	"time"

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
		if err := d.Thaw(ctx, sandboxID); err != nil {
			return err
		}
		if err := d.StopPrimary(ctx, sandboxID, patience); err != nil {
			return err
		}
		return d.StopServices(ctx, sandboxID, patience)
	})
}

// Halt implements runtime.Runtime.
func (d *Docker) Halt(ctx context.Context, sandboxID string) (err error) {
	ctx = d.oplogs.Begin(ctx, sandboxID, "halt", nil)
	defer oplog.Step(ctx, "stopped", "sandbox")(&err)
	return engine.RetryTransient(ctx, func() error {
		ctx, cancel := d.api.Write(ctx)
		defer cancel()
		if err := d.Thaw(ctx, sandboxID); err != nil {
			return err
		}
		services := make(chan error, 1)
		go func() { services <- d.StopServices(ctx, sandboxID, 0) }()
		err := d.StopPrimary(ctx, sandboxID, 0)
		if errors.Is(err, engine.ErrMissing) {
			err = nil
		}
		return errors.Join(err, <-services)
	})
}
