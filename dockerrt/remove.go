package dockerrt

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/oplog"
)

// Remove implements runtime.Runtime.
func (d *Docker) Remove(ctx context.Context, sandboxID string) (err error) {
	ctx = d.oplogs.Begin(ctx, sandboxID, "remove", nil)
	defer oplog.Step(ctx, "removed", "sandbox")(&err)
	if err := d.clear(ctx, sandboxID); err != nil {
		return err
	}
	d.removeFork(ctx, sandboxID)
	return nil
}

// clear is Remove for a sandbox that may be made again: a fork keeps what it is made from.
func (d *Docker) clear(ctx context.Context, sandboxID string) error {
	return reached(passing(ctx, func() error { return d.remove(ctx, sandboxID) }))
}

func (d *Docker) remove(ctx context.Context, sandboxID string) error {
	ctx, cancel := d.write(ctx)
	defer cancel()
	d.links.retire(sandboxID, true)
	if err := d.thaw(ctx, sandboxID); err != nil {
		return err
	}
	if err := d.removeContainers(ctx, sandboxID); err != nil {
		return err
	}
	if err := d.removeNetworks(ctx, sandboxID, ""); err != nil {
		return err
	}
	if err := d.removeVolumes(ctx, sandboxID); err != nil {
		return err
	}
	d.unlink(sandboxID)
	return d.layout.removeRun(sandboxID)
}

// Forget implements runtime.Runtime.
func (d *Docker) Forget(sandboxID string) error {
	d.links.retire(sandboxID, false)
	return errors.Join(d.layout.removeHistory(sandboxID), d.oplogs.Remove(sandboxID))
}

// What an engine refuses in passing is tried again this often, with delays that double: for 6 s in all.
const (
	tries    = 8
	tryDelay = 50 * time.Millisecond
)

// passing tries a call again that may be made twice without harm, and returns its last error. An error of ours with
// a code, one that did not reach the engine, or one marked backoff.Permanent, is final.
func passing(ctx context.Context, do func() error) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.Multiplier, wait.RandomizationFactor = tryDelay, 2, 0
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := reached(do())
		if _, final := errors.AsType[*codedError](err); final || errors.Is(err, runtime.ErrUnreachable) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithMaxTries(tries), backoff.WithBackOff(wait))
	return err
}

// removalInProgress: somebody else removes the container already, which is all we want.
func removalInProgress(err error) bool {
	return isConflict(err) && strings.Contains(err.Error(), "already in progress")
}
