// Package observe tells what there is in an engine of this daemon's sandboxes, and what happens to it.
package observe

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	dockercontainer "github.com/docker/docker/api/types/container"
	dockernetwork "github.com/docker/docker/api/types/network"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/container"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/execs"
	"github.com/agbox-dev/agbox/dockerrt/image"
	"github.com/agbox-dev/agbox/dockerrt/layout"
	"github.com/agbox-dev/agbox/dockerrt/links"
	"github.com/agbox-dev/agbox/dockerrt/mount"
	"github.com/agbox-dev/agbox/dockerrt/network"
	"github.com/agbox-dev/agbox/dockerrt/snapshot"
	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/oplog"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Rooms are what is looked at.
type Rooms struct {
	Engine     *engine.Client
	Containers *container.Containers
	Networks   *network.Networks
	Mounts     *mount.Mounts
	Snapshots  *snapshot.Store
	Links      *links.Links
	Execs      *execs.Execs
	Oplogs     *oplog.Logs
	Names      *image.Names
}

// Observer implements runtime.Observer but for ExecIDs.
type Observer struct {
	layout     layout.Layout
	engine     *engine.Client
	containers *container.Containers
	networks   *network.Networks
	mounts     *mount.Mounts
	snapshots  *snapshot.Store
	links      *links.Links
	execs      *execs.Execs
	oplogs     *oplog.Logs
	names      *image.Names
	patience   time.Duration
	log        *slog.Logger
}

// New returns the observer of one engine. An agbox-init whose link is lost has patience to answer, 0 for link.Patience, before its
// sandbox counts as lost.
func New(at Rooms, layout layout.Layout, patience time.Duration, log *slog.Logger) *Observer {
	return &Observer{layout, at.Engine, at.Containers, at.Networks, at.Mounts, at.Snapshots, at.Links, at.Execs, at.Oplogs, at.Names, patience, log}
}

// Inventory implements runtime.Runtime: four lists, however many sandboxes there are.
func (o *Observer) Inventory(ctx context.Context) (_ runtime.Inventory, err error) {
	defer engine.Mark(&err)
	ctx, cancel := o.engine.Read(ctx)
	defer cancel()
	found := runtime.Inventory{Objects: map[string]bool{}, Since: map[string]time.Time{}}
	containers, err := o.engine.Containers(ctx, "", true)
	if err != nil {
		return found, fmt.Errorf("dockerrt: %w", err)
	}
	for _, c := range containers {
		id := o.engine.SandboxOf(c.Labels)
		if runtime.IsPlace(id) {
			continue
		}
		found.Since[id] = earlier(found.Since[id], time.Unix(c.Created, 0))
		found.Objects[id] = found.Objects[id] || c.Labels[engine.LabelOwner] != o.engine.Process()
	}
	networks, err := o.engine.NetworkList(ctx, dockernetwork.ListOptions{Filters: o.engine.Mine("")})
	if err != nil {
		return found, fmt.Errorf("dockerrt: cannot list networks: %w", err)
	}
	o.networks.Inventory(networks, found.Objects)
	_ = o.networks.Compare(networks) // what is wrong is in the log and in Isolated
	if err := o.mounts.Inventory(ctx, found.Objects); err != nil {
		return found, err
	}
	if err := o.snapshots.Inventory(ctx, found.Objects); err != nil {
		return found, err
	}
	found.Histories, err = o.layout.Histories()
	found.Histories = slices.DeleteFunc(found.Histories, runtime.IsPlace)
	for _, id := range found.Histories {
		found.Since[id] = earlier(found.Since[id], o.layout.Since(id))
	}
	return found, err
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Observe implements runtime.Runtime.
func (o *Observer) Observe(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (runtime.Observation, error) {
	seen, err := o.observe(ctx, sandboxID, spec)
	if err == nil && seen.Cause != "" {
		o.oplogs.Note(sandboxID, "observe", seen.Cause)
	}
	if seen.Alive {
		if _, err := o.links.Booted(sandboxID); err != nil {
			o.log.Warn("no way for commands yet", "sandbox_id", sandboxID, "error", err)
		}
	}
	return seen, engine.Unreachable(err)
}

func (o *Observer) observe(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (runtime.Observation, error) {
	ctx, cancel := o.engine.Read(ctx)
	defer cancel()
	services := map[string]string{} // ids
	if !container.Alone(spec) {
		containers, err := o.engine.Containers(ctx, sandboxID, true)
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
			id, err = o.engine.Primary(ctx, sandboxID)
		}
		var found dockercontainer.InspectResponse
		if err == nil && id != "" {
			found, err = o.engine.ContainerInspect(ctx, id) // a list is behind the event that tells of an end
		}
		if id == "" && err == nil || engine.IsNotFound(err) {
			return missingPart, nil
		} else if err != nil {
			return part{}, fmt.Errorf("dockerrt: cannot inspect %s: %w", cmp.Or(service, engine.PrimaryName(sandboxID)), err)
		}
		return o.look(ctx, sandboxID, spec, service, found), nil
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
func (o *Observer) look(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, service string, found dockercontainer.InspectResponse) part {
	if service == "" && !found.State.Running && o.links.Starved(sandboxID) {
		found.State.OOMKilled = true // which the engine may not have heard
	}
	switch {
	case !found.State.Running && container.OutOfMemory(found.State) && service == "":
		return part{runtime.CodeOutOfMemory, container.Ended(found.State)}
	case !found.State.Running:
		return part{cause: container.Ended(found.State)}
	case network.Networked(spec) && found.NetworkSettings.Networks[o.networks.Name(sandboxID)] == nil:
		return part{runtime.CodeNetworkLost, "was taken off its network " + o.networks.Name(sandboxID) + ", as by docker network disconnect"}
	case service == "" && !found.State.Paused: // which nobody can expect an answer of
		return o.unlinked(ctx, sandboxID)
	}
	return part{}
}

// unlinked tells why nothing can be asked of the primary, which runs. One whose link is lost has as much time again.
func (o *Observer) unlinked(ctx context.Context, sandboxID string) part {
	guest := o.links.Find(sandboxID)
	switch {
	case guest == nil:
		return part{}
	case guest.Lost() && !guest.Reborn():
		ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.patience, link.Patience))
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
