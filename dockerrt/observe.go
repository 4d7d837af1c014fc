package dockerrt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"github.com/agbox-dev/agbox/actors"
)

// Inventory implements actors.Runtime: two lists, however many sandboxes there are.
func (d *Docker) Inventory(ctx context.Context) (actors.Inventory, error) {
	inventory, err := d.inventory(ctx)
	return inventory, reached(err)
}

func (d *Docker) inventory(ctx context.Context) (actors.Inventory, error) {
	ctx, cancel := d.read(ctx)
	defer cancel()
	found := actors.Inventory{Running: map[string]bool{}, Objects: map[string]bool{}}
	containers, err := d.api.ContainerList(ctx, container.ListOptions{All: true, Filters: d.mine("")})
	if err != nil {
		return found, fmt.Errorf("dockerrt: cannot list containers: %w", err)
	}
	for _, c := range containers {
		id := c.Labels[labelSandbox]
		found.Objects[id] = found.Objects[id] || c.Labels[labelOwner] != d.owner()
		if c.Labels[labelComponent] != componentPrimary || c.State != container.StateRunning {
			continue
		}
		found.Running[id] = true
	}
	networks, err := d.api.NetworkList(ctx, network.ListOptions{Filters: d.mine("")})
	if err != nil {
		return found, fmt.Errorf("dockerrt: cannot list networks: %w", err)
	}
	for _, n := range networks {
		id := n.Labels[labelSandbox]
		found.Objects[id] = found.Objects[id] || n.Labels[labelOwner] != d.owner()
	}
	found.Histories, err = d.layout.histories()
	return found, err
}

// histories lists the sandboxes that have logs or results.
func (l layout) histories() ([]string, error) {
	var ids []string
	seen := map[string]bool{}
	for _, parent := range []string{l.logs(""), l.results("")} {
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
func (d *Docker) Observe(ctx context.Context, sandboxID string) (actors.Primary, error) {
	ctx, cancel := d.read(ctx)
	defer cancel()
	name := primaryName(sandboxID)
	found, err := d.api.ContainerInspect(ctx, name)
	if isNotFound(err) || err == nil && !d.owns(found.Config.Labels, sandboxID) {
		return actors.Primary{Cause: "the primary container " + name + " is missing: somebody removed it"}, nil
	} else if err != nil {
		return actors.Primary{}, reached(fmt.Errorf("dockerrt: cannot inspect %s: %w", name, err))
	}
	if !found.State.Running {
		return actors.Primary{Cause: cause(found.State)}, nil
	}
	return actors.Primary{Running: true}, nil
}

// Attach implements actors.Runtime.
func (d *Docker) Attach(sandboxID string) error {
	_, err := d.running(sandboxID)
	return err
}

func cause(state *container.State) string {
	text := fmt.Sprintf("the primary container ended with exit code %d", state.ExitCode)
	if state.ExitCode > 128 {
		text += fmt.Sprintf(" (signal %d, %s)", state.ExitCode-128, syscall.Signal(state.ExitCode-128))
	}
	if state.OOMKilled {
		text += ", out of memory"
	}
	if state.Error != "" {
		text += ": " + state.Error
	}
	return text
}
