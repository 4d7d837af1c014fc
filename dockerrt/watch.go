package dockerrt

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/docker/docker/api/types/events"
)

// Watch implements actors.Runtime. Docker keeps only 256 events to look back on, and may have lost its own
// connection to us at any moment, so after each reconnect everything counts as missed.
func (d *Docker) Watch(ctx context.Context, since time.Time, ended func(sandboxID string), missed func()) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 50*time.Millisecond, 5*time.Second
	for first := true; ctx.Err() == nil; first = false {
		if !first {
			missed()
		}
		err := d.follow(ctx, &since, ended, wait.Reset)
		if ctx.Err() != nil {
			return
		}
		delay := wait.NextBackOff()
		d.log.Warn("docker's event stream ended, connecting again", "after", delay, "error", err)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
	}
}

func (d *Docker) follow(ctx context.Context, since *time.Time, ended func(string), alive func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	filter := d.mine("")
	filter.Add("type", string(events.ContainerEventType))
	filter.Add("event", string(events.ActionDie))
	filter.Add("label", labelComponent+"="+componentPrimary)
	messages, errs := d.api.Events(ctx, events.ListOptions{Since: since.Format(time.RFC3339Nano), Filters: filter})
	for {
		select {
		case m := <-messages:
			alive()
			*since = time.Unix(0, m.TimeNano)
			ended(m.Actor.Attributes[labelSandbox])
		case err := <-errs:
			return err
		}
	}
}
