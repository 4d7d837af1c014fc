package dockerrt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cenkalti/backoff/v5"
	dockercontainer "github.com/docker/docker/api/types/container"
	dockerimage "github.com/docker/docker/api/types/image"
	dockernetwork "github.com/docker/docker/api/types/network"
	"golang.org/x/sync/errgroup"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/container"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/host"
	"github.com/agbox-dev/agbox/dockerrt/image"
	"github.com/agbox-dev/agbox/dockerrt/links"
	"github.com/agbox-dev/agbox/dockerrt/network"
	"github.com/agbox-dev/agbox/dockerrt/service"
	"github.com/agbox-dev/agbox/oplog"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Conflict implements runtime.Runtime.
func (d *Docker) Conflict(ctx context.Context, sandboxID string) error {
	err := engine.Unreachable(d.conflict(ctx, sandboxID))
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // it was our own
		return fmt.Errorf("%w: %s did not answer within %s: look at dockerd and try again", runtime.ErrUnreachable, d.api.DaemonHost(), engine.ReadTimeout)
	}
	return err
}

func (d *Docker) conflict(ctx context.Context, sandboxID string) error {
	ctx, cancel := d.api.Read(ctx)
	defer cancel()
	name := engine.PrimaryName(sandboxID)
	found, err := d.api.ContainerInspect(ctx, name)
	if err == nil && d.api.Owns(found.Config.Labels, sandboxID) && d.api.Ours(found.Config.Labels, found.Image) {
		return leftOf(sandboxID, "container "+name)
	}
	if err == nil {
		return fmt.Errorf("%w: %s", runtime.ErrConflict, engine.Foreign("container", name, found.Config.Labels))
	}
	if err != nil && !engine.IsNotFound(err) {
		return fmt.Errorf("dockerrt: cannot look for container %s: %w", name, err)
	}
	name = engine.NetworkName(sandboxID)
	n, err := d.api.NetworkInspect(ctx, name, dockernetwork.InspectOptions{})
	if err == nil && d.api.Owns(n.Labels, sandboxID) {
		return leftOf(sandboxID, "network "+name)
	}
	if err == nil {
		return fmt.Errorf("%w: %s", runtime.ErrConflict, engine.Foreign("network", name, n.Labels))
	}
	if err != nil && !engine.IsNotFound(err) {
		return fmt.Errorf("dockerrt: cannot look for network %s: %w", name, err)
	}
	return nil
}

// leftOf refuses an id under which something of this daemon's is there already, though no sandbox has it: making another
// one would remove that.
func leftOf(sandboxID, what string) error {
	return fmt.Errorf("%w: %s is left of a sandbox %s that agboxd does not know: choose another sandbox id, or start agboxd --adopt to get that one back",
		runtime.ErrConflict, what, sandboxID)
}

// Create implements runtime.Runtime.
func (d *Docker) Create(ctx context.Context, sandboxID, life string, spec *agboxv1.CreateSpec, report func(runtime.Progress)) (started runtime.Started, err error) {
	defer engine.Mark(&err)
	d.oplogs.Open(sandboxID)
	ctx = d.queue.Join(d.oplogs.BeginSpec(ctx, sandboxID, "create", spec))
	defer oplog.Step(ctx, "ready", "sandbox")(&err)
	begun, err := d.layout.Begun(sandboxID, life)
	if err != nil {
		return runtime.Started{}, err
	}
	if d.api.Place(sandboxID) != sandboxID {
		return d.finish(ctx, sandboxID, life, begun, spec, report)
	}
	if why := runtime.Miss(ctx); why != "" {
		oplog.Printf(ctx, "it is made, and not taken from what was made ahead: %s", why)
	}
	var found dockerimage.InspectResponse
	if !begun {
		if err := d.mounts.Check(spec, false); err != nil { // before anybody waits for a pull
			return runtime.Started{}, err
		}
		report(runtime.Preparing{Phase: "materialize"})
		if found, err = d.prepare(ctx, spec, report); err != nil {
			return runtime.Started{}, err
		}
	}
	started, err = d.materialize(ctx, sandboxID, life, begun, spec, found, report)
	if err != nil && ctx.Err() == nil { // one that was given up from outside is removed or made anew by what comes next
		return started, errors.Join(err, d.clear(context.WithoutCancel(ctx), sandboxID))
	}
	return started, err
}

// prepare makes the images of the primary and of the required services present, all at the same time.
func (d *Docker) prepare(ctx context.Context, spec *agboxv1.CreateSpec, report func(runtime.Progress)) (dockerimage.InspectResponse, error) {
	progress := func(p image.Progress) {
		report(runtime.Preparing{Phase: "pull", Image: p.Image, Done: uint64(p.Done), Total: uint64(p.Total)})
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return service.Each(ctx, spec.RequiredServices, func(ctx context.Context, service *agboxv1.ServiceSpec) error {
			_, err := d.images.EnsureNoted(ctx, service.Image, service.PullPolicy, progress)
			return err
		})
	})
	var found dockerimage.InspectResponse
	group.Go(func() (err error) {
		found, err = d.images.EnsureNoted(ctx, spec.Image, spec.PullPolicy, progress)
		return err
	})
	return found, group.Wait()
}

// take waits for a turn to ask the engine for something large; see queue.Queue.Take.
func (d *Docker) take(ctx context.Context, report func(runtime.Progress)) (give func(), err error) {
	queued := false
	var moved func(before int)
	if report != nil {
		moved = func(before int) {
			queued = true
			report(runtime.Preparing{Phase: "queued", Before: uint32(before)})
		}
	}
	give, err = d.queue.Take(ctx, moved)
	if queued && err == nil {
		report(runtime.Preparing{Phase: "make"})
	}
	return give, err
}

// materialize makes the sandbox's parts and starts it. Nobody waits for its turn while files are copied, services become
// healthy or an entrypoint prepares the primary. One that has begun is only waited for.
func (d *Docker) materialize(ctx context.Context, sandboxID, life string, begun bool, spec *agboxv1.CreateSpec, found dockerimage.InspectResponse, report func(runtime.Progress)) (runtime.Started, error) {
	var networkID string
	if !begun {
		var err error
		if networkID, err = d.make(ctx, sandboxID, spec, found, report); err != nil {
			return runtime.Started{}, err
		}
		if err := d.CopyIn(ctx, sandboxID, spec); err != nil {
			return runtime.Started{}, err
		}
	}
	err := d.run(ctx, sandboxID, life, begun, spec, true, report, func(link *links.Link) error {
		err := d.startInTurn(ctx, sandboxID, link, spec)
		if err != nil && strings.Contains(err.Error(), "ambiguous") {
			if err := d.networks.Remove(ctx, sandboxID, networkID); err != nil {
				return err
			}
			err = d.startInTurn(ctx, sandboxID, link, spec)
		}
		return err
	})
	if err != nil {
		return runtime.Started{}, err
	}
	if err := d.HookRequired(ctx, sandboxID, spec.RequiredServices, report); err != nil {
		return runtime.Started{}, err
	}
	ports, err := d.PublishedPorts(ctx, sandboxID, spec)
	return runtime.Started{Ports: ports}, err
}

// run starts what the sandbox consists of and waits until commands can run in it; start is for the primary, which is not
// started once more where its life has begun. hooks: some of the services are not ready without their hooks.
func (d *Docker) run(ctx context.Context, sandboxID, life string, begun bool, spec *agboxv1.CreateSpec, hooks bool, report func(runtime.Progress), start func(*links.Link) error) error {
	link, err := d.links.Open(sandboxID)
	if err != nil {
		return err
	}
	if err := d.StartRequired(ctx, sandboxID, spec); err != nil {
		return err
	}
	if err := d.AwaitRequired(ctx, sandboxID, spec.RequiredServices, hooks, report); err != nil {
		return err
	}
	if begun {
		link.Started()
	} else if err := start(link); err != nil {
		return err
	}
	err = d.BootPrimary(ctx, sandboxID, link, life, spec)
	if begun && err != nil {
		err = fmt.Errorf("its command may have been started before agboxd ended, and is not run twice: %w", err)
	}
	return err
}

// make makes the parts. What an interrupted create left behind, or what an engine still makes for a daemon that died, is
// removed first: it may lack files.
func (d *Docker) make(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, found dockerimage.InspectResponse, report func(runtime.Progress)) (networkID string, err error) {
	give, err := d.take(ctx, report)
	if err != nil {
		return "", err
	}
	defer give()
	err = engine.RetryTransient(ctx, func() error {
		if d.networks.Claimed(sandboxID) { // by an earlier try, whose containers may be on it
			if err := d.remove(ctx, sandboxID); err != nil {
				return err
			}
		}
		if err := d.networks.Claim(ctx, sandboxID, spec); err != nil {
			return backoff.Permanent(err)
		}
		var err error
		if networkID, err = d.makeParts(ctx, sandboxID, spec, found); err == nil {
			return nil
		}
		if !engine.IsConflict(err) {
			return backoff.Permanent(err)
		}
		return errors.Join(err, d.remove(ctx, sandboxID))
	})
	return networkID, err
}

func (d *Docker) startInTurn(ctx context.Context, sandboxID string, link *links.Link, spec *agboxv1.CreateSpec) error {
	give, err := d.queue.Take(ctx, nil)
	if err != nil {
		return err
	}
	defer give()
	return d.StartPrimary(ctx, sandboxID, link, spec)
}

// makeParts makes network and containers at the same time: an engine checks that the network is there only when a
// container starts.
func (d *Docker) makeParts(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, found dockerimage.InspectResponse) (networkID string, err error) {
	d.links.Drop(sandboxID)
	d.links.Retire(sandboxID, false)
	if err := d.layout.MarkRelayed(sandboxID, d.relays || !host.SharesKernel(spec.Runtime)); err != nil {
		return "", fmt.Errorf("cannot note how commands get into the sandbox: %w", err)
	}
	if _, err := d.links.Open(sandboxID); err != nil { // a container begins with the socket there
		return "", err
	}
	networked := make(chan error, 1)
	go func() {
		var err error
		networkID, err = d.networks.Create(ctx, sandboxID, spec)
		networked <- err
	}()
	if err = d.mounts.Make(ctx, sandboxID, spec); err == nil {
		err = d.CreatePrimary(ctx, sandboxID, spec, found)
	}
	if err == nil {
		err = service.Each(ctx, spec.RequiredServices, func(ctx context.Context, service *agboxv1.ServiceSpec) error {
			return d.CreateService(ctx, sandboxID, spec, service)
		})
	}
	if networkErr := <-networked; networkErr != nil && (err == nil || !engine.IsConflict(err)) {
		err = networkErr
	}
	return networkID, err
}

// Resume implements runtime.Runtime.
func (d *Docker) Resume(ctx context.Context, sandboxID, life string, spec *agboxv1.CreateSpec, report func(runtime.Progress)) (_ runtime.Started, err error) {
	defer engine.Mark(&err)
	ctx = d.queue.Join(d.oplogs.BeginSpec(ctx, sandboxID, "resume", spec))
	defer oplog.Step(ctx, "ready", "sandbox")(&err)
	begun, err := d.layout.Begun(sandboxID, life)
	if err != nil {
		return runtime.Started{}, err
	}
	if !begun {
		if err := d.checkParts(ctx, sandboxID, spec); err != nil {
			return runtime.Started{}, err
		}
		if err := d.mounts.Check(spec, true); err != nil { // before a service starts
			return runtime.Started{}, err
		}
		if err := d.networks.Admit(ctx, sandboxID, spec); err != nil {
			return runtime.Started{}, err
		}
		d.links.Drop(sandboxID)
	}
	err = d.run(ctx, sandboxID, life, begun, spec, false, report, func(link *links.Link) error { return d.startInTurn(ctx, sandboxID, link, spec) })
	if err != nil {
		if ctx.Err() == nil { // nothing of a sandbox that failed goes on
			err = errors.Join(err, d.Halt(context.WithoutCancel(ctx), sandboxID))
		}
		return runtime.Started{}, err
	}
	ports, err := d.PublishedPorts(ctx, sandboxID, spec)
	return runtime.Started{Ports: ports}, err
}

// Restart implements runtime.Runtime.
func (d *Docker) Restart(ctx context.Context, sandboxID, life string, spec *agboxv1.CreateSpec, report func(runtime.Progress)) (runtime.Started, error) {
	begun, err := d.layout.Begun(sandboxID, life)
	if err == nil && !begun {
		err = d.Halt(ctx, sandboxID)
	}
	if err != nil {
		return runtime.Started{}, err
	}
	return d.Resume(ctx, sandboxID, life, spec, report)
}

// checkParts refuses to resume what is not whole: nothing is silently recreated.
func (d *Docker) checkParts(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) error {
	ctx, cancel := d.api.Read(ctx)
	defer cancel()
	missing := func(kind, name string) error {
		return engine.Coded("SANDBOX_RUNTIME_CORRUPT", "%w: %s: delete the sandbox and create it again", engine.ErrMissing, strings.TrimSpace(kind+" "+name))
	}
	containers, err := d.api.Containers(ctx, sandboxID, true)
	if err != nil {
		return err
	}
	there := func(component, service string) bool {
		return slices.ContainsFunc(containers, func(c dockercontainer.Summary) bool {
			return c.Labels[engine.LabelComponent] == component && c.Labels[engine.LabelService] == service
		})
	}
	if !there(engine.ComponentPrimary, "") {
		return missing("container", engine.PrimaryName(sandboxID))
	}
	for _, service := range spec.RequiredServices {
		if !there(engine.ComponentService, service.Name) {
			return missing("the container of service", service.Name)
		}
	}
	if lacks, err := d.mounts.Missing(ctx, sandboxID, spec); err != nil {
		return err
	} else if lacks != "" {
		return missing("", lacks)
	}
	networks, err := d.networks.Find(ctx, sandboxID)
	if err != nil {
		return err
	}
	if len(networks) == 0 && network.Networked(spec) {
		return missing("network", d.networks.Name(sandboxID))
	}
	for _, c := range containers {
		if !container.Connected(c) {
			name, net := engine.ContainerName(c), d.networks.Name(sandboxID)
			return engine.Coded("SANDBOX_RUNTIME_CORRUPT", "%w: container %s is not on network %s any more: delete the sandbox and create it again",
				engine.ErrMissing, name, net)
		}
	}
	return nil
}
