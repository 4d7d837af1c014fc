package observe

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
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/oplog"
)

// Watch implements runtime.Runtime. Docker keeps only 256 events to look back on, and may have lost its own
// connection to us at any moment, so each reconnect counts as a gap. Whoever reads the events never waits for a disk.
func (o *Observer) Watch(ctx context.Context, since time.Time, watcher runtime.Watcher) {
	o.links.Watch(watcher)
	notes := make(chan note, maxNotes)
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := range notes {
			if n.commandOf != "" {
				n.Entry = n.With(o.commandEnd(n.commandOf))
			}
			o.oplogs.Append(n.Entry)
		}
	})
	defer writer.Wait()
	defer close(notes)
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 50*time.Millisecond, 5*time.Second
	for first := true; ctx.Err() == nil; first = false {
		if !first {
			watcher.Missed()
		}
		err := o.follow(ctx, &since, !first, watcher, notes, wait.Reset)
		if ctx.Err() != nil {
			return
		}
		delay := wait.NextBackOff()
		o.log.Warn("docker's event stream ended, connecting again", "after", delay, "error", err)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
	}
}

// note is a line for an operation log that waits for the disk.
type note struct {
	oplog.Entry
	// commandOf is the sandbox whose primary ended, so that the end of its command belongs into the line; else "".
	commandOf string
}

// maxNotes is how many wait at most: what 256 sandboxes tell that end at once, with three services each.
const maxNotes = 1024

// follow delivers events until the stream ends. Docker does not let networks be selected by label, so that everybody's
// are read; Docker wants its events read in any case.
func (o *Observer) follow(ctx context.Context, since *time.Time, again bool, watcher runtime.Watcher, notes chan<- note, alive func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	filter := filters.NewArgs(
		filters.Arg("type", string(events.ContainerEventType)), filters.Arg("type", string(events.NetworkEventType)),
		filters.Arg("type", string(events.ImageEventType)), filters.Arg("event", string(events.ActionTag)),
		filters.Arg("event", string(events.ActionUnTag)), filters.Arg("event", string(events.ActionDelete)), filters.Arg("event", string(events.ActionPull)),
		filters.Arg("event", string(events.ActionImport)), filters.Arg("event", string(events.ActionLoad)),
		filters.Arg("event", string(events.ActionDie)), filters.Arg("event", string(events.ActionCreate)),
		filters.Arg("event", string(events.ActionHealthStatus)), filters.Arg("event", string(events.ActionDisconnect)),
	)
	messages, errs := o.engine.Events(ctx, events.ListOptions{Since: since.Format(time.RFC3339Nano), Filters: filter})
	o.names.Connected(again, watcher.ImagesChanged)
	defer o.names.Disconnected()
	for {
		select {
		case m := <-messages:
			alive()
			at := time.Unix(0, m.TimeNano)
			if at.After(*since) { // the one of then is delivered again
				o.noteEvent(m, notes)
			}
			*since = at
			o.deliver(m, watcher)
		case err := <-errs:
			return err
		}
	}
}

func (o *Observer) deliver(m events.Message, watcher runtime.Watcher) {
	labels := m.Actor.Attributes
	if m.Type == events.ImageEventType {
		o.names.Changed(m.Action, m.Actor.ID, labels["name"])
		if m.Action == events.ActionTag && o.snapshots.HalfMade(labels["name"], labels) {
			watcher.Missed()
		}
		return
	}
	if m.Type == events.NetworkEventType {
		if m.Action == events.ActionCreate {
			o.networks.Appeared(labels["name"])
		}
		switch id := o.networks.SandboxOf(labels["name"]); {
		case id == "":
		case m.Action == events.ActionCreate:
			watcher.Appeared(id)
		case m.Action == events.ActionDisconnect:
			watcher.Ended(id)
		}
		return
	}
	sandboxID := o.engine.SandboxOf(labels)
	switch {
	case labels[engine.LabelInstance] != o.engine.Instance():
	case m.Action == events.ActionCreate:
		watcher.Appeared(sandboxID)
	case m.Action != events.ActionDie:
	default:
		watcher.Ended(sandboxID)
	}
}

// commandEnd says how the sandbox's own command ended, "" where it has none or did not end: the container's exit code is that
// of agbox-init.
func (o *Observer) commandEnd(sandboxID string) string {
	result, ended := o.execs.ExecRecord(sandboxID, runtime.CommandID)
	switch {
	case !ended:
		return ""
	case result.Signal != 0:
		return fmt.Sprintf("; its command had ended with signal %d", result.Signal)
	}
	return fmt.Sprintf("; its command had ended with exit code %d", result.ExitCode)
}

// noteEvent has the end of a container, and a change of a service's health, recorded in the sandbox's operation log.
func (o *Observer) noteEvent(m events.Message, notes chan<- note) {
	labels := m.Actor.Attributes
	sandboxID := o.engine.SandboxOf(labels)
	if m.Type != events.ContainerEventType || !o.engine.Ours(labels, labels["image"]) || runtime.IsPlace(sandboxID) {
		return
	}
	var text string
	switch {
	case m.Action == events.ActionDie:
		text = "container " + labels["name"] + " ended with exit code " + labels["exitCode"]
	case strings.HasPrefix(string(m.Action), string(events.ActionHealthStatus)):
		text = "service " + labels[engine.LabelService] + ": " + string(m.Action)
	default:
		return
	}
	n := note{Entry: oplog.NewEntry(sandboxID, "engine", text)}
	if m.Action == events.ActionDie && labels[engine.LabelComponent] == engine.ComponentPrimary {
		n.commandOf = sandboxID
	}
	select {
	case notes <- n:
	default:
		o.log.Warn("a line is missing in a sandbox's operation log: the disk is too slow", "sandbox_id", sandboxID, "line", text)
	}
}
