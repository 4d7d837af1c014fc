package dockerrt

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/agbox-dev/agbox/actors/runtime"
)

// Watch implements runtime.Runtime. Docker keeps only 256 events to look back on, and may have lost its own
// connection to us at any moment, so each reconnect counts as a gap. Whoever reads the events never waits for a disk.
func (d *Docker) Watch(ctx context.Context, since time.Time, watcher runtime.Watcher) {
	d.links.watch(watcher)
	told := make(chan entry, maxTold)
	var writer sync.WaitGroup
	writer.Go(func() {
		for e := range told {
			if e.primary {
				e.line = strings.TrimSuffix(e.line, "\n") + d.commandEnd(e.sandboxID) + "\n"
			}
			d.appendEntry(e)
		}
	})
	defer writer.Wait()
	defer close(told)
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 50*time.Millisecond, 5*time.Second
	for first := true; ctx.Err() == nil; first = false {
		if !first {
			watcher.Missed()
		}
		err := d.follow(ctx, &since, watcher, told, wait.Reset)
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

// maxTold is how many lines for operation logs wait for the disk at most: what 256 sandboxes tell that end at once, with three
// services each.
const maxTold = 1024

// follow delivers events until the stream ends. Docker does not let networks be selected by label, so that everybody's
// are read; Docker wants its events read in any case.
func (d *Docker) follow(ctx context.Context, since *time.Time, watcher runtime.Watcher, told chan<- entry, alive func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	filter := filters.NewArgs(
		filters.Arg("type", string(events.ContainerEventType)), filters.Arg("type", string(events.NetworkEventType)),
		filters.Arg("event", string(events.ActionDie)), filters.Arg("event", string(events.ActionCreate)),
		filters.Arg("event", string(events.ActionHealthStatus)), filters.Arg("event", string(events.ActionDisconnect)),
	)
	messages, errs := d.api.Events(ctx, events.ListOptions{Since: since.Format(time.RFC3339Nano), Filters: filter})
	for {
		select {
		case m := <-messages:
			alive()
			at := time.Unix(0, m.TimeNano)
			if at.After(*since) { // the one of then is delivered again
				d.tellEvent(m, told)
			}
			*since = at
			d.deliver(m, watcher)
		case err := <-errs:
			return err
		}
	}
}

func (d *Docker) deliver(m events.Message, watcher runtime.Watcher) {
	labels := m.Actor.Attributes
	if m.Type == events.NetworkEventType {
		switch id, ours := strings.CutPrefix(labels["name"], networkPrefix); {
		case !ours:
		case m.Action == events.ActionCreate:
			watcher.Appeared(id)
		case m.Action == events.ActionDisconnect:
			watcher.Ended(id)
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

// commandEnd says how the sandbox's own command ended, "" where it has none or did not end: the container's exit code is that
// of agbox-init.
func (d *Docker) commandEnd(sandboxID string) string {
	result, ended := d.ExecRecord(sandboxID, runtime.CommandID)
	switch {
	case !ended:
		return ""
	case result.Signal != 0:
		return fmt.Sprintf("; its command had ended with signal %d", result.Signal)
	}
	return fmt.Sprintf("; its command had ended with exit code %d", result.ExitCode)
}

// tellEvent has the end of a container, and a change of a service's health, recorded in the sandbox's operation log.
func (d *Docker) tellEvent(m events.Message, told chan<- entry) {
	labels := m.Actor.Attributes
	if m.Type != events.ContainerEventType || !d.ours(labels, labels["image"]) {
		return
	}
	var text string
	switch {
	case m.Action == events.ActionDie:
		text = "container " + labels["name"] + " ended with exit code " + labels["exitCode"]
	case strings.HasPrefix(string(m.Action), string(events.ActionHealthStatus)):
		text = "service " + labels[labelService] + ": " + string(m.Action)
	default:
		return
	}
	e := newEntry(labels[labelSandbox], "engine", text)
	e.primary = m.Action == events.ActionDie && labels[labelComponent] == componentPrimary
	select {
	case told <- e:
	default:
		d.log.Warn("a line is missing in a sandbox's operation log: the disk is too slow", "sandbox_id", labels[labelSandbox], "line", text)
	}
}
