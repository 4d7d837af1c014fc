package dockerrt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Inventory implements actors.Runtime: four lists, however many sandboxes there are.
func (d *Docker) Inventory(ctx context.Context) (actors.Inventory, error) {
	inventory, err := d.inventory(ctx)
	return inventory, reached(err)
}

func (d *Docker) inventory(ctx context.Context) (actors.Inventory, error) {
	ctx, cancel := d.read(ctx)
	defer cancel()
	found := actors.Inventory{Running: map[string]bool{}, Objects: map[string]bool{}, Since: map[string]time.Time{}}
	containers, err := d.api.ContainerList(ctx, container.ListOptions{All: true, Filters: d.mine("")})
	if err != nil {
		return found, fmt.Errorf("dockerrt: cannot list containers: %w", err)
	}
	for _, c := range containers {
		id := c.Labels[labelSandbox]
		found.Since[id] = earlier(found.Since[id], time.Unix(c.Created, 0))
		found.Objects[id] = found.Objects[id] || c.Labels[labelOwner] != d.owner()
		running := c.State == container.StateRunning || c.State == container.StatePaused
		if seen, others := found.Running[id]; others {
			running = running && seen
		}
		found.Running[id] = running
	}
	networks, err := d.api.NetworkList(ctx, network.ListOptions{Filters: d.mine("")})
	if err != nil {
		return found, fmt.Errorf("dockerrt: cannot list networks: %w", err)
	}
	for _, n := range networks {
		id := n.Labels[labelSandbox]
		found.Objects[id] = found.Objects[id] || n.Labels[labelOwner] != d.owner()
	}
	if err := d.inventoryLayers(ctx, found.Objects); err != nil {
		return found, err
	}
	if err := d.inventorySnapshots(ctx, found.Objects); err != nil {
		return found, err
	}
	found.Histories, err = d.layout.histories()
	for _, id := range found.Histories {
		found.Since[id] = earlier(found.Since[id], d.layout.since(id))
	}
	return found, err
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// histories lists the sandboxes that have logs or results.
func (l layout) histories() ([]string, error) {
	var ids []string
	seen := map[string]bool{}
	for _, parent := range []string{l.logs(""), l.results(""), l.oplog("")} {
		entries, err := os.ReadDir(parent)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("dockerrt: cannot list logs: %w", err)
		}
		for _, entry := range entries {
			if !seen[entry.Name()] {
				seen[entry.Name()] = true
				ids = append(ids, entry.Name())
			}
		}
	}
	return ids, nil
}

// Observe implements actors.Runtime.
func (d *Docker) Observe(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (actors.Observation, error) {
	seen, err := d.observe(ctx, sandboxID, spec)
	if err == nil && seen.Cause != "" {
		d.note(sandboxID, "observe", seen.Cause)
	}
	return seen, reached(err)
}

func (d *Docker) observe(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (actors.Observation, error) {
	ctx, cancel := d.read(ctx)
	defer cancel()
	containers, err := d.api.ContainerList(ctx, container.ListOptions{All: true, Filters: d.mine(sandboxID)})
	if err != nil {
		return actors.Observation{}, fmt.Errorf("dockerrt: cannot list containers: %w", err)
	}
	byService := map[string]container.Summary{} // the primary is ""
	for _, c := range containers {
		byService[c.Labels[labelService]] = c
	}
	starved := false // the last one that was looked at
	why := func(service string) (string, error) {
		c, there := byService[service]
		if !there {
			return "is missing: somebody removed it", nil
		}
		found, err := d.api.ContainerInspect(ctx, c.ID) // a list is behind the event that tells of an end
		if isNotFound(err) {
			return "is missing: somebody removed it", nil
		} else if err != nil {
			return "", fmt.Errorf("dockerrt: cannot inspect %s: %w", c.ID, err)
		}
		if found.State.Running {
			return "", nil
		}
		starved = outOfMemory(found.State)
		return ended(found.State), nil
	}
	seen := actors.Observation{Lost: map[string]string{}}
	if cause, err := why(""); err != nil || cause != "" {
		seen.Code, seen.Cause = lifecycle.CodeContainerNotRunning, "the primary container "+cause
		if starved {
			seen.Code = lifecycle.CodeOutOfMemory
		}
		return seen, err
	}
	for _, service := range spec.GetRequiredServices() {
		if cause, err := why(service.Name); err != nil || cause != "" {
			seen.Code, seen.Cause = lifecycle.CodeServiceNotRunning, "the required service "+service.Name+" "+cause
			return seen, err
		}
	}
	for _, service := range spec.GetOptionalServices() {
		cause, err := why(service.Name)
		if err != nil {
			return seen, err
		}
		if cause != "" {
			seen.Lost[service.Name] = "it " + cause
		}
	}
	seen.Alive = true
	return seen, nil
}

// Attach implements actors.Runtime.
func (d *Docker) Attach(sandboxID string) error {
	_, err := d.running(sandboxID)
	return err
}

// outOfMemory reports whether the kernel ended the container for want of memory. The engine's flag alone is also set when it
// ended any other process of it before.
func outOfMemory(state *container.State) bool {
	return state.OOMKilled && state.ExitCode == 128+int(syscall.SIGKILL)
}

// ended says how a container ended, after its name.
func ended(state *container.State) string {
	text := fmt.Sprintf("ended with exit code %d", state.ExitCode)
	if state.ExitCode > 128 {
		text += fmt.Sprintf(" (signal %d, %s)", state.ExitCode-128, syscall.Signal(state.ExitCode-128))
	}
	if state.ExitCode == 0 {
		text += ": it was asked to end, as by docker stop or by an engine that was stopped without live-restore"
	}
	if state.OOMKilled {
		text += ", out of memory"
	}
	if state.Error != "" {
		text += ": " + state.Error
	}
	return text
}
