package dockerrt

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"
	dockernetwork "github.com/docker/docker/api/types/network"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/network"
	"github.com/agbox-dev/agbox/guest/link"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Inventory implements runtime.Runtime: four lists, however many sandboxes there are.
func (d *Docker) Inventory(ctx context.Context) (_ runtime.Inventory, err error) {
	defer engine.Mark(&err)
	ctx, cancel := d.api.Read(ctx)
	defer cancel()
	found := runtime.Inventory{Objects: map[string]bool{}, Since: map[string]time.Time{}}
	containers, err := d.api.Containers(ctx, "", true)
	if err != nil {
		return found, fmt.Errorf("dockerrt: %w", err)
	}
	for _, c := range containers {
		id := c.Labels[engine.LabelSandbox]
		found.Since[id] = earlier(found.Since[id], time.Unix(c.Created, 0))
		found.Objects[id] = found.Objects[id] || c.Labels[engine.LabelOwner] != d.api.Process()
	}
	networks, err := d.api.NetworkList(ctx, dockernetwork.ListOptions{Filters: d.api.Mine("")})
	if err != nil {
		return found, fmt.Errorf("dockerrt: cannot list networks: %w", err)
	}
	for _, n := range networks {
		id := n.Labels[engine.LabelSandbox]
		found.Objects[id] = found.Objects[id] || n.Labels[engine.LabelOwner] != d.api.Process()
	}
	_ = d.networks.Compare(networks) // what is wrong is in the log and in Isolated
	if err := d.mounts.Inventory(ctx, found.Objects); err != nil {
		return found, err
	}
	if err := d.snapshots.Inventory(ctx, found.Objects); err != nil {
		return found, err
	}
	found.Histories, err = d.layout.Histories()
	for _, id := range found.Histories {
		found.Since[id] = earlier(found.Since[id], d.layout.Since(id))
	}
	return found, err
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// connected reports whether a container is on the network that it was made for.
func connected(c container.Summary) bool {
	name := c.HostConfig.NetworkMode
	return !strings.HasPrefix(name, engine.NetworkPrefix) || c.NetworkSettings == nil || c.NetworkSettings.Networks[name] != nil
}

// Observe implements runtime.Runtime.
func (d *Docker) Observe(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (runtime.Observation, error) {
	seen, err := d.observe(ctx, sandboxID, spec)
	if err == nil && seen.Cause != "" {
		d.oplogs.Note(sandboxID, "observe", seen.Cause)
	}
	if seen.Alive {
		if _, err := d.links.Booted(sandboxID); err != nil {
			d.log.Warn("no way for commands yet", "sandbox_id", sandboxID, "error", err)
		}
	}
	return seen, engine.Unreachable(err)
}

func (d *Docker) observe(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (runtime.Observation, error) {
	ctx, cancel := d.api.Read(ctx)
	defer cancel()
	services := map[string]string{} // ids
	if !alone(spec) {
		containers, err := d.api.Containers(ctx, sandboxID, true)
		if err != nil {
			return runtime.Observation{}, fmt.Errorf("dockerrt: %w", err)
		}
		for _, c := range containers {
			services[c.Labels[engine.LabelService]] = c.ID
		}
	}
	look := func(service string) (part, error) {
		id, err := services[service], error(nil)
		if service == "" {
			id, err = d.api.Primary(ctx, sandboxID)
		}
		var found container.InspectResponse
		if err == nil && id != "" {
			found, err = d.api.ContainerInspect(ctx, id) // a list is behind the event that tells of an end
		}
		if id == "" && err == nil || engine.IsNotFound(err) {
			return missingPart, nil
		} else if err != nil {
			return part{}, fmt.Errorf("dockerrt: cannot inspect %s: %w", cmp.Or(service, engine.PrimaryName(sandboxID)), err)
		}
		return d.look(ctx, sandboxID, spec, service, found), nil
	}
	seen := runtime.Observation{Lost: map[string]string{}}
	primary, err := look("")
	if err != nil || primary.cause != "" {
		seen.Code, seen.Cause = cmp.Or(primary.code, runtime.CodeContainerNotRunning), "the primary container "+primary.cause
		return seen, err
	}
	for _, service := range spec.GetRequiredServices() {
		found, err := look(service.Name)
		if err != nil || found.cause != "" {
			seen.Code, seen.Cause = runtime.CodeServiceNotRunning, "the required service "+service.Name+" "+found.cause
			return seen, err
		}
	}
	for _, service := range spec.GetOptionalServices() {
		found, err := look(service.Name)
		if err != nil {
			return seen, err
		}
		if found.cause != "" {
			seen.Lost[service.Name] = "it " + found.cause
		}
	}
	seen.Alive = true
	return seen, nil
}

// part is what a look at one container of a sandbox found: nothing, or why it is of no use, to follow its name.
type part struct{ code, cause string }

var missingPart = part{cause: "is missing: somebody removed it"}

// look judges a container by what the engine says of it and, if it is the primary, by its link.
func (d *Docker) look(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, service string, found container.InspectResponse) part {
	switch {
	case !found.State.Running && outOfMemory(found.State) && service == "":
		return part{runtime.CodeOutOfMemory, ended(found.State)}
	case !found.State.Running:
		return part{cause: ended(found.State)}
	case network.Networked(spec) && found.NetworkSettings.Networks[engine.NetworkName(sandboxID)] == nil:
		return part{runtime.CodeNetworkLost, "was taken off its network " + engine.NetworkName(sandboxID) + ", as by docker network disconnect"}
	case service == "" && !found.State.Paused: // which nobody can expect an answer of
		return d.unlinked(ctx, sandboxID)
	}
	return part{}
}

// unlinked tells why nothing can be asked of the primary, which runs. One whose link is lost has as much time again.
func (d *Docker) unlinked(ctx context.Context, sandboxID string) part {
	guest := d.links.Find(sandboxID)
	switch {
	case guest == nil:
		return part{}
	case guest.Lost() && !guest.Reborn():
		ctx, cancel := context.WithTimeout(ctx, cmp.Or(d.config.LinkPatience, link.Patience))
		defer cancel()
		if guest.Ping(ctx) == nil {
			return part{}
		}
	}
	switch {
	case guest.Reborn():
		return part{cause: "was started again by somebody else, as by docker restart: what ran in it has ended"}
	case !guest.Lost():
		return part{}
	}
	return part{runtime.CodeLinkLost, "runs, but its agbox-init cannot be reached: nothing in it can be started, ended or heard of"}
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
