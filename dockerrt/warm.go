package dockerrt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	dockercontainer "github.com/docker/docker/api/types/container"
	dockernetwork "github.com/docker/docker/api/types/network"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/host"
	"github.com/agbox-dev/agbox/dockerrt/image"
	"github.com/agbox-dev/agbox/dockerrt/layout"
	"github.com/agbox-dev/agbox/dockerrt/links"
	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/oplog"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

const (
	// firstHello bounds the wait for the agbox-init of what was made ahead, and of what an earlier daemon has left.
	firstHello = time.Minute
	leftHello  = 10 * time.Second
	// leaveTime bounds the removal of what could not be made; who asked for it has it removed after that.
	leaveTime = 10 * time.Second
	// renameAfter leaves the processors to the first command.
	renameAfter = 200 * time.Millisecond
)

// Warm implements runtime.Warmer.
func (d *Docker) Warm(ctx context.Context, place string, spec *agboxv1.CreateSpec) (made runtime.Place, err error) {
	defer engine.Mark(&err)
	made = runtime.Place{ID: place, Spec: spec}
	if d.relays || !host.SharesKernel(spec.Runtime) {
		return made, fmt.Errorf("%w: commands get into it by the engine", runtime.ErrUnfit)
	}
	ctx = d.queue.Join(runtime.WithTurn(ctx, runtime.Turn{Class: runtime.Refill}))
	found, err := d.images.Ensure(ctx, spec.Image, image.Missing, func(image.Progress) {})
	if err != nil {
		return made, err
	}
	if found.Config != nil && len(found.Config.Entrypoint) > 0 {
		return made, fmt.Errorf("%w: its image has an entrypoint, which is to run for each sandbox", runtime.ErrUnfit)
	}
	if made.Image, err = d.names.Track(ctx, spec.Image); err != nil {
		return made, err
	}
	if made.Image != found.ID {
		return made, fmt.Errorf("the name %s means another image than a moment ago", spec.Image)
	}
	if err = d.layout.Make(place); err != nil { // before its network is claimed, so that Vacant finds it whatever it comes to
		return made, err
	}
	if _, err = d.make(ctx, place, spec, found, nil); err == nil {
		err = d.await(ctx, place, spec)
	}
	if err != nil {
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
		defer cancel()
		return made, errors.Join(err, d.Vacate(leaving, place))
	}
	made.Ready = true
	return made, nil
}

// await starts what is at the place, and waits for its agbox-init.
func (d *Docker) await(ctx context.Context, place string, spec *agboxv1.CreateSpec) error {
	to, err := d.links.Open(place)
	if err != nil {
		return err
	}
	if err := d.startInTurn(ctx, place, to, spec); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, firstHello)
	defer cancel()
	_, err = link.Fresh(ctx, to.Link)
	return err
}

// Vacate implements runtime.Warmer.
func (d *Docker) Vacate(ctx context.Context, place string) (err error) {
	defer engine.Mark(&err)
	if tenant := d.api.Tenant(place); tenant != place {
		return fmt.Errorf("dockerrt: %s is of sandbox %s", place, tenant)
	}
	if err := d.clear(runtime.WithTurn(ctx, runtime.Turn{Class: runtime.Cleanup}), place); err != nil {
		return err
	}
	d.links.Retire(place, false)
	return d.layout.Leave(place)
}

// Vacant implements runtime.Warmer.
func (d *Docker) Vacant(ctx context.Context) (_ []runtime.Place, err error) {
	defer engine.Mark(&err)
	listing, cancel := d.api.Read(ctx)
	defer cancel()
	containers, err := d.api.Containers(listing, "", true)
	if err != nil {
		return nil, err
	}
	networks, err := d.api.NetworkList(listing, dockernetwork.ListOptions{Filters: d.api.Mine("")})
	if err != nil {
		return nil, err
	}
	ids, err := d.layout.Places()
	if err != nil {
		return nil, err
	}
	for _, n := range networks {
		ids = append(ids, n.Labels[engine.LabelSandbox])
	}
	there := map[string]dockercontainer.Summary{}
	for _, c := range containers {
		ids = append(ids, c.Labels[engine.LabelSandbox])
		there[c.Labels[engine.LabelSandbox]] = c
	}
	slices.Sort(ids)
	var places []runtime.Place
	for _, id := range slices.Compact(ids) {
		if runtime.IsPlace(id) && d.api.Tenant(id) == id {
			places = append(places, look(ctx, d, id, there[id]))
		}
	}
	return places, nil
}

// look tells whether what is at the place, in a container or none, can be taken.
func look(ctx context.Context, d *Docker, id string, c dockercontainer.Summary) runtime.Place {
	place := runtime.Place{ID: id, Image: c.ImageID, Spec: &agboxv1.CreateSpec{}}
	if c.State != "running" || protojson.Unmarshal([]byte(c.Labels[engine.LabelTemplate]), place.Spec) != nil {
		return place
	}
	ctx, cancel := context.WithTimeout(ctx, leftHello)
	defer cancel()
	found, err := d.api.ImageInspect(ctx, c.ImageID)
	if err != nil || c.Labels[engine.LabelMade] != d.Made(id, place.Spec, found) {
		return place
	}
	if image, err := d.names.Track(ctx, place.Spec.Image); err != nil || image != c.ImageID {
		return place
	}
	to, err := d.links.Open(id)
	if err != nil {
		return place
	}
	to.Started()
	if fresh, err := link.Fresh(ctx, to.Link); err == nil && fresh {
		place.Ready = d.networks.Admit(ctx, id, place.Spec) == nil
	}
	return place
}

// Reserve implements runtime.Warmer.
func (d *Docker) Reserve(sandboxID, place string) { d.api.Reserve(sandboxID, place) }

// Release implements runtime.Warmer.
func (d *Docker) Release(sandboxID, place string) {
	retired := d.links.Retired(sandboxID)
	d.links.Retire(sandboxID, false)
	d.api.Release(sandboxID, place)
	if retired {
		d.links.Retire(sandboxID, true)
	}
}

// ImageID implements runtime.Warmer.
func (d *Docker) ImageID(name string) (id string, known bool) { return d.names.ID(name) }

// Occupy implements runtime.Warmer.
func (d *Docker) Occupy(sandboxID, place string, spec *agboxv1.CreateSpec) error {
	if err := d.layout.Occupy(sandboxID, place); err != nil {
		return err
	}
	if _, err := os.Lstat(d.layout.SpecFile(sandboxID)); err != nil {
		text, err := protojson.Marshal(spec)
		if err == nil {
			err = os.WriteFile(d.layout.SpecFile(sandboxID), text, 0o600)
		}
		if err != nil {
			return fmt.Errorf("dockerrt: cannot note what the sandbox is: %w", err)
		}
		d.oplogs.Open(sandboxID)
		d.oplogs.Note(sandboxID, "create", "it took what was made ahead at "+place)
	}
	boot := runtime.ReadyAtOnce(spec) && !d.layout.Marked(sandboxID, layout.Booted)
	named := d.layout.Marked(sandboxID, layout.Named)
	if !boot && named {
		return nil
	}
	var link *links.Link
	if boot {
		var err error
		if link, err = d.links.Open(sandboxID); err != nil {
			return err
		}
		link.Started()
	}
	d.taking.Go(func() { settle(d, sandboxID, link, spec, named) })
	return nil
}

// settle boots what took a place, unless link is nil, and gives its container the usual name.
func settle(d *Docker, sandboxID string, link *links.Link, spec *agboxv1.CreateSpec, named bool) {
	ctx, cancel := context.WithCancel(d.api.Closed())
	defer cancel()
	if link != nil {
		err := d.BootTaken(ctx, sandboxID, link, spec)
		if err == nil {
			err = d.layout.Mark(sandboxID, layout.Booted)
		}
		if err != nil {
			d.log.Warn("a sandbox that was made ahead was not told what it is", "sandbox_id", sandboxID, "error", err)
			return
		}
	}
	if named {
		return
	}
	select {
	case <-time.After(renameAfter):
	case <-ctx.Done():
		return
	}
	id, err := d.api.Primary(ctx, sandboxID)
	if err == nil {
		renaming, cancel := d.api.Write(ctx)
		err = d.api.ContainerRename(renaming, id, engine.PrimaryName(sandboxID))
		cancel()
	}
	if err == nil && !d.links.Retired(sandboxID) {
		err = d.layout.Mark(sandboxID, layout.Named)
	}
	if err != nil && !engine.IsNotFound(err) {
		d.log.Warn("a sandbox's container keeps the name that it was made with", "sandbox_id", sandboxID, "error", err)
	}
}

// finish is Create for a sandbox that took a place.
func (d *Docker) finish(ctx context.Context, sandboxID, life string, begun bool, spec *agboxv1.CreateSpec, report func(runtime.Progress)) (_ runtime.Started, err error) {
	oplog.Printf(ctx, "what is left to do of what was made ahead at %s", d.api.Place(sandboxID))
	report(runtime.Preparing{Phase: "materialize"})
	link, err := d.links.Running(sandboxID)
	if err == nil && !begun {
		err = d.CopyIn(ctx, sandboxID, spec)
	}
	if err == nil {
		err = d.BootPrimary(ctx, sandboxID, link, life, spec)
	}
	if err == nil {
		err = d.layout.Mark(sandboxID, layout.Booted)
	}
	if err != nil && ctx.Err() == nil {
		err = errors.Join(err, d.clear(context.WithoutCancel(ctx), sandboxID))
	}
	return runtime.Started{}, err
}
