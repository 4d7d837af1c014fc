package checker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Labels of the contract, written down again: the checker shares no code with what it checks.
const (
	labelSandbox  = "io.github.1996fanrui.agents-sandbox.sandbox-id"
	labelInstance = "io.github.1996fanrui.agents-sandbox.instance"
	labelService  = "io.github.1996fanrui.agents-sandbox.service-name"
)

// An engine finishes what a dead daemon had asked it for, also after the next one has removed the sandbox. The daemon
// removes that as soon as it appears, and has this long for it.
const (
	lateTime = time.Minute
	lateLook = 100 * time.Millisecond
)

// awaitEngine judges the engine once it has nothing of DELETED sandboxes, or the time for that is over.
func (c *Checker) awaitEngine(ctx context.Context, known map[string]agboxv1.SandboxState) error {
	look := time.NewTicker(lateLook)
	defer look.Stop()
	for over := time.Now().Add(lateTime); time.Now().Before(over); {
		if late, err := c.late(ctx, known); err != nil {
			return err
		} else if !late {
			break
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return c.judgeEngine(ctx, known)
}

// late reports whether the engine has an object of a sandbox that is DELETED.
func (c *Checker) late(ctx context.Context, known map[string]agboxv1.SandboxState) (bool, error) {
	ours := filters.NewArgs(filters.Arg("label", labelSandbox))
	networks, err := c.Engine.NetworkList(ctx, network.ListOptions{Filters: ours})
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	containers, err := c.Engine.ContainerList(ctx, container.ListOptions{All: true, Filters: ours})
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	volumes, err := c.Engine.VolumeList(ctx, volume.ListOptions{Filters: ours})
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	for _, n := range networks {
		if id, _ := c.tenant(n.Labels[labelSandbox]); known[id] == deleted {
			return true, nil
		}
	}
	for _, v := range volumes.Volumes {
		if id, _ := c.tenant(v.Labels[labelSandbox]); known[id] == deleted {
			return true, nil
		}
	}
	for _, found := range containers {
		if id, _ := c.tenant(found.Labels[labelSandbox]); known[id] == deleted {
			return true, nil
		}
	}
	return false, nil
}

// judgeEngine compares what the engine has with the states of the sandboxes, which are at rest.
func (c *Checker) judgeEngine(ctx context.Context, known map[string]agboxv1.SandboxState) error {
	instance, err := c.instance()
	if err != nil {
		return err
	}
	ours := func(labels map[string]string) bool {
		_, there := known[labels[labelSandbox]]
		return there || labels[labelInstance] == instance
	}
	networks, pooled, err := c.judgeNetworks(ctx, known, ours)
	if err != nil {
		return err
	}
	if err := c.judgePooled(ctx, networks, pooled, ours); err != nil {
		return err
	}
	if err := c.judgeVolumes(ctx, known, ours); err != nil {
		return err
	}
	containers, err := c.judgeContainers(ctx, known, ours)
	if err != nil {
		return err
	}
	for id, state := range known {
		if state != ready && state != stopped {
			continue
		}
		if least := 1 + c.Services; containers[id] < least || containers[id] > least+c.Optional || networks[id] != 1 {
			c.report.add(Missing, id, "it is %s and has %d containers, %d networks", state, containers[id], networks[id])
		}
	}
	return nil
}

func (c *Checker) judgeNetworks(ctx context.Context, known map[string]agboxv1.SandboxState, ours func(map[string]string) bool) (count map[string]int, pooled map[string]bool, err error) {
	list, err := c.Engine.NetworkList(ctx, network.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	count, pooled = map[string]int{}, map[string]bool{}
	for _, n := range list {
		if !ours(n.Labels) {
			continue
		}
		id, labelled := n.Labels[labelSandbox]
		if !labelled {
			pooled[n.Name] = true
			continue
		}
		id, vacant := c.tenant(id)
		if vacant {
			continue
		}
		count[id]++
		if state, there := known[id]; !there || state == deleted {
			c.report.add(LeakedNetwork, n.Name, "its sandbox is %s", label(state, there))
		}
	}
	return count, pooled, nil
}

// judgePooled counts for each sandbox the networks that its containers are made for and that bear no sandbox's name, and finds
// those that two have.
func (c *Checker) judgePooled(ctx context.Context, count map[string]int, pooled map[string]bool, ours func(map[string]string) bool) error {
	list, err := c.Engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", labelSandbox))})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	owner := map[string]string{}
	for _, found := range list {
		name := found.HostConfig.NetworkMode
		id, _ := c.tenant(found.Labels[labelSandbox])
		if !ours(found.Labels) || !pooled[name] {
			continue
		}
		switch other, owned := owner[name]; {
		case !owned:
			owner[name] = id
			count[id]++
		case other != id:
			c.report.add(SharedNetwork, name, "it is that of %s and of %s", other, id)
		}
	}
	return nil
}

// Unowned lists the networks of the daemon that no sandbox has. The daemon must not run, and every sandbox be deleted.
func (c *Checker) Unowned(ctx context.Context) ([]string, error) {
	instance, err := c.instance()
	if err != nil {
		return nil, err
	}
	list, err := c.Engine.NetworkList(ctx, network.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelInstance+"="+instance))})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	var names []string
	for _, n := range list {
		names = append(names, n.Name)
	}
	return names, nil
}

// judgeVolumes finds the layers of copy-on-write mounts whose sandbox is gone.
func (c *Checker) judgeVolumes(ctx context.Context, known map[string]agboxv1.SandboxState, ours func(map[string]string) bool) error {
	list, err := c.Engine.VolumeList(ctx, volume.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelSandbox))})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	for _, v := range list.Volumes {
		if state, there := known[v.Labels[labelSandbox]]; ours(v.Labels) && (!there || state == deleted) {
			c.report.add(LeakedVolume, v.Name, "its sandbox is %s", label(state, there))
		}
	}
	return nil
}

func (c *Checker) judgeContainers(ctx context.Context, known map[string]agboxv1.SandboxState, ours func(map[string]string) bool) (map[string]int, error) {
	list, err := c.Engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", labelSandbox))})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	count := map[string]int{}
	for _, found := range list {
		if !ours(found.Labels) {
			continue
		}
		id, vacant := c.tenant(found.Labels[labelSandbox])
		if vacant {
			continue
		}
		count[id]++
		name, running := strings.Join(found.Names, " "), found.State == container.StateRunning
		state, there := known[id]
		switch {
		case !there || state == deleted:
			c.report.add(LeakedContainer, name, "its sandbox is %s", label(state, there))
		case state == ready && c.Optional > 0 && found.Labels[labelService] != "" && found.State == container.StateCreated:
			// an optional service on its way
		case state == ready && !running, state == stopped && running, state == paused && found.State != container.StatePaused:
			c.report.add(InconsistentView, name, "its sandbox is %s, it is %s", state, found.State)
		case running && state == ready && found.Labels[labelService] == "":
			c.judgeProcesses(ctx, found.ID, name)
		}
	}
	return count, nil
}

// judgeProcesses finds what still runs in a sandbox whose commands have all ended.
func (c *Checker) judgeProcesses(ctx context.Context, containerID, name string) {
	top, err := c.Engine.ContainerTop(ctx, containerID, nil)
	if err != nil {
		return // it ended since the list; the next look tells
	}
	if len(top.Processes) > 1 {
		c.report.add(LeakedProcess, name, "beside its init: %v", top.Processes[1:])
	}
}

// instance is the owner's id that every object of the daemon's carries.
func (c *Checker) instance() (string, error) {
	text, err := os.ReadFile(filepath.Join(c.DataDir, "instance"))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	id, _, _ := strings.Cut(string(text), "\n")
	return id, nil
}

// Sweep removes what the daemon has on the engine, so that a broken promise is not the next run's trouble. The
// daemon must not run.
func (c *Checker) Sweep(ctx context.Context) error {
	instance, err := c.instance()
	if errors.Is(err, os.ErrNotExist) {
		return nil // it never started
	} else if err != nil {
		return err
	}
	ours := filters.NewArgs(filters.Arg("label", labelInstance+"="+instance))
	containers, err := c.Engine.ContainerList(ctx, container.ListOptions{All: true, Filters: ours})
	if err != nil {
		return err
	}
	var errs []error
	for _, found := range containers {
		errs = append(errs, c.Engine.ContainerRemove(ctx, found.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
	}
	networks, err := c.Engine.NetworkList(ctx, network.ListOptions{Filters: ours})
	for _, found := range networks {
		errs = append(errs, c.Engine.NetworkRemove(ctx, found.ID))
	}
	volumes, volumesErr := c.Engine.VolumeList(ctx, volume.ListOptions{Filters: ours})
	for _, found := range volumes.Volumes {
		errs = append(errs, c.Engine.VolumeRemove(ctx, found.Name, true))
	}
	images, imagesErr := c.images(ctx, instance)
	for _, found := range images {
		_, err := c.Engine.ImageRemove(ctx, found.ID, image.RemoveOptions{Force: true})
		errs = append(errs, err)
	}
	errs = append(errs, volumesErr, imagesErr)
	return errors.Join(append(errs, err)...)
}
