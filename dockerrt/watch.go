package dockerrt

import (
	"context"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/agbox-dev/agbox/actors"
)

// Watch implements actors.Runtime. Docker keeps only 256 events to look back on, and may have lost its own
// connection to us at any moment, so each reconnect counts as a gap.
func (d *Docker) Watch(ctx context.Context, since time.Time, watcher actors.Watcher) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 50*time.Millisecond, 5*time.Second
	for first := true; ctx.Err() == nil; first = false {
		if !first {
			watcher.Missed()
		}
		err := d.follow(ctx, &since, watcher, wait.Reset)
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

// follow delivers events until the stream ends. Docker does not let networks be selected by label, so that everybody's
// are read; Docker wants its events read in any case.
func (d *Docker) follow(ctx context.Context, since *time.Time, watcher actors.Watcher, alive func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	filter := filters.NewArgs(
		filters.Arg("type", string(events.ContainerEventType)), filters.Arg("type", string(events.NetworkEventType)),
		filters.Arg("event", string(events.ActionDie)), filters.Arg("event", string(events.ActionCreate)),
		filters.Arg("event", string(events.ActionHealthStatus)),
	)
	messages, errs := d.api.Events(ctx, events.ListOptions{Since: since.Format(time.RFC3339Nano), Filters: filter})
	for {
		select {
		case m := <-messages:
			alive()
			at := time.Unix(0, m.TimeNano)
			if at.After(*since) { // the one of then is delivered again
				d.tellEvent(m)
			}
			*since = at
			d.deliver(m, watcher)
		case err := <-errs:
			return err
		}
	}
}

func (d *Docker) deliver(m events.Message, watcher actors.Watcher) {
	labels := m.Actor.Attributes
	if m.Type == events.NetworkEventType {
		if id, ours := strings.CutPrefix(labels["name"], networkPrefix); ours {
			watcher.Appeared(id)
		}
		return
	}
	switch {
	case labels[labelInstance] != d.config.Instance:
	case m.Action == events.ActionCreate:
		watcher.Appeared(labels[labelSandbox])
	case m.Action != events.ActionDie:
	default:
		watcher.Ended(labels[labelSandbox])
	}
}

// tellEvent has the end of a container, and a change of a service's health, in the sandbox's story.
func (d *Docker) tellEvent(m events.Message) {
	labels := m.Actor.Attributes
	if m.Type != events.ContainerEventType || labels[labelInstance] != d.config.Instance {
		return
	}
	switch sandboxID := labels[labelSandbox]; {
	case m.Action == events.ActionDie:
		d.tell(sandboxID, "engine", "container "+labels["name"]+" ended with exit code "+labels["exitCode"])
	case strings.HasPrefix(string(m.Action), string(events.ActionHealthStatus)):
		d.tell(sandboxID, "engine", "service "+labels[labelService]+": "+string(m.Action))
	}
}
