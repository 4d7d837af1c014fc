package dockerrt

import (
	"context"
	"errors"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/oplog"
)

// Remove implements runtime.Runtime.
func (d *Docker) Remove(ctx context.Context, sandboxID string) (err error) {
	ctx = d.oplogs.Begin(ctx, sandboxID, "remove", nil)
	defer oplog.Step(ctx, "removed", "sandbox")(&err)
	if err := d.clear(ctx, sandboxID); err != nil {
		return err
	}
	d.snapshots.RemoveFork(ctx, sandboxID)
	return nil
}

// clear is Remove for a sandbox that may be made again: a fork keeps what it is made from.
func (d *Docker) clear(ctx context.Context, sandboxID string) error {
	give, err := d.take(ctx, nil)
	if err != nil {
		return err
	}
	defer give()
	return engine.RetryTransient(ctx, func() error { return d.remove(ctx, sandboxID) })
}

func (d *Docker) remove(ctx context.Context, sandboxID string) error {
	ctx, cancel := d.api.Write(ctx)
	defer cancel()
	d.links.Retire(sandboxID, true)
	if err := d.Thaw(ctx, sandboxID); err != nil {
		return err
	}
	if err := d.RemoveContainers(ctx, sandboxID); err != nil {
		return err
	}
	if err := d.networks.Remove(ctx, sandboxID, ""); err != nil {
		return err
	}
	if err := d.mounts.Remove(ctx, sandboxID); err != nil {
		return err
	}
	d.links.Drop(sandboxID)
	if place := d.api.Place(sandboxID); place != sandboxID {
		if err := d.layout.Leave(place); err != nil {
			return err
		}
	}
	return d.layout.RemoveRun(sandboxID)
}

// Forget implements runtime.Runtime.
func (d *Docker) Forget(sandboxID string) error {
	d.links.Retire(sandboxID, false)
	return errors.Join(d.layout.RemoveHistory(sandboxID), d.oplogs.Remove(sandboxID))
}
