package dockerrt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Conflict implements actors.Runtime.
func (d *Docker) Conflict(ctx context.Context, sandboxID string) error {
	return reached(d.conflict(ctx, sandboxID))
}

func (d *Docker) conflict(ctx context.Context, sandboxID string) error {
	ctx, cancel := d.read(ctx)
	defer cancel()
	name := primaryName(sandboxID)
	found, err := d.api.ContainerInspect(ctx, name)
	if err == nil && !d.owns(found.Config.Labels, sandboxID) {
		return fmt.Errorf("%w: container %s: choose another sandbox id, or remove that container", actors.ErrConflict, name)
	}
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("dockerrt: cannot look for container %s: %w", name, err)
	}
	name = networkName(sandboxID)
	n, err := d.api.NetworkInspect(ctx, name, network.InspectOptions{})
	if err == nil && !d.owns(n.Labels, sandboxID) {
		return fmt.Errorf("%w: network %s: choose another sandbox id, or remove that network", actors.ErrConflict, name)
	}
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("dockerrt: cannot look for network %s: %w", name, err)
	}
	return nil
}

// Create implements actors.Runtime.
func (d *Docker) Create(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, report func(lifecycle.Command)) error {
	return reached(d.create(ctx, sandboxID, spec, report))
}

func (d *Docker) create(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, report func(lifecycle.Command)) error {
	report(lifecycle.Preparing{Phase: "materialize"})
	image, err := d.ensureImage(ctx, spec.Image, report)
	if err != nil {
		return err
	}
	select {
	case d.creates <- struct{}{}:
		defer func() { <-d.creates }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := d.materialize(ctx, sandboxID, spec, image); err != nil {
		if ctx.Err() != nil {
			return err // given up from outside: what comes next removes or makes anew
		}
		return errors.Join(err, d.Remove(context.WithoutCancel(ctx), sandboxID))
	}
	return nil
}

// materialize makes the sandbox's parts and starts it. What an interrupted create left behind, or what an engine still
// makes for a daemon that died, is removed first: it may lack files.
func (d *Docker) materialize(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, image imageConfig) error {
	var link *sandboxLink
	var network string
	err := passing(ctx, func() error {
		var err error
		if link, network, err = d.makeParts(ctx, sandboxID, spec, image); err == nil {
			return nil
		}
		if !isConflict(err) {
			return backoff.Permanent(err)
		}
		return errors.Join(err, d.remove(ctx, sandboxID))
	})
	if err != nil {
		return err
	}
	err = d.start(ctx, sandboxID, link)
	if err != nil && strings.Contains(err.Error(), "ambiguous") {
		if err := d.removeNetworks(ctx, sandboxID, network); err != nil {
			return err
		}
		err = d.start(ctx, sandboxID, link)
	}
	return err
}

// makeParts makes network and container at the same time: an engine checks that the network is there only when the
// container starts.
func (d *Docker) makeParts(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, image imageConfig) (link *sandboxLink, network string, err error) {
	d.unlink(sandboxID)
	if link, err = d.link(sandboxID); err != nil {
		return nil, "", err
	}
	networked := make(chan error, 1)
	go func() {
		var err error
		network, err = d.createNetwork(ctx, sandboxID, spec.Labels)
		networked <- err
	}()
	err = d.createPrimary(ctx, sandboxID, spec, image)
	if networkErr := <-networked; networkErr != nil && (err == nil || !isConflict(err)) {
		err = networkErr
	}
	return link, network, err
}

// Resume implements actors.Runtime.
func (d *Docker) Resume(ctx context.Context, sandboxID string, _ *agboxv1.CreateSpec, _ func(lifecycle.Command)) error {
	return reached(d.resume(ctx, sandboxID))
}

func (d *Docker) resume(ctx context.Context, sandboxID string) error {
	if err := d.checkParts(ctx, sandboxID); err != nil {
		return err
	}
	d.unlink(sandboxID)
	link, err := d.link(sandboxID)
	if err != nil {
		return err
	}
	return d.start(ctx, sandboxID, link)
}

// checkParts refuses to resume what is not whole: nothing is silently recreated.
func (d *Docker) checkParts(ctx context.Context, sandboxID string) error {
	ctx, cancel := d.read(ctx)
	defer cancel()
	missing := func(kind, name string) error {
		return coded("SANDBOX_RUNTIME_CORRUPT", "%w: %s %s: delete the sandbox and create it again", ErrMissing, kind, name)
	}
	found, err := d.api.ContainerInspect(ctx, primaryName(sandboxID))
	if isNotFound(err) || err == nil && !d.owns(found.Config.Labels, sandboxID) {
		return missing("container", primaryName(sandboxID))
	} else if err != nil {
		return err
	}
	networks, err := d.api.NetworkList(ctx, network.ListOptions{Filters: d.mine(sandboxID)})
	if err != nil {
		return err
	}
	if len(networks) == 0 {
		return missing("network", networkName(sandboxID))
	}
	return nil
}

// Stop implements actors.Runtime. It asks agbox-init, which ends everything and then itself: that spares Docker's own
// way to a process, a quarter of the time that a kill takes. Docker stops the container when that does not help.
func (d *Docker) Stop(ctx context.Context, sandboxID string) error {
	return reached(passing(ctx, func() error { return d.stop(ctx, sandboxID) }))
}

func (d *Docker) stop(ctx context.Context, sandboxID string) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout+d.config.StopGrace)
	defer cancel()
	name := primaryName(sandboxID)
	if !d.stopByInit(ctx, sandboxID) {
		grace := int(stopSlack / time.Second)
		if err := d.api.ContainerStop(ctx, name, container.StopOptions{Timeout: &grace}); isNotFound(err) {
			return coded("SANDBOX_RUNTIME_CORRUPT", "%w: container %s: delete the sandbox", ErrMissing, name)
		} else if err != nil {
			return fmt.Errorf("cannot stop container %s: %w", name, err)
		}
	}
	d.unlink(sandboxID)
	return nil
}

// stopSlack is what agbox-init gets beyond the grace to end by itself.
const stopSlack = 2 * time.Second

// stopByInit reports whether the container ended because its init was asked to.
func (d *Docker) stopByInit(ctx context.Context, sandboxID string) bool {
	link, err := d.running(sandboxID)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, d.config.StopGrace+stopSlack)
	defer cancel()
	ended, errs := d.api.ContainerWait(ctx, primaryName(sandboxID), container.WaitConditionNotRunning)
	asked := make(chan error, 1)
	go func() { asked <- link.Stop(ctx, d.config.StopGrace) }()
	defer func() { cancel(); <-asked }()
	select {
	case <-ended:
		return true
	case <-errs:
		return false
	}
}

// Remove implements actors.Runtime.
func (d *Docker) Remove(ctx context.Context, sandboxID string) error {
	return reached(passing(ctx, func() error { return d.remove(ctx, sandboxID) }))
}

func (d *Docker) remove(ctx context.Context, sandboxID string) error {
	ctx, cancel := d.write(ctx)
	defer cancel()
	if err := d.removeContainers(ctx, sandboxID); err != nil {
		return err
	}
	if err := d.removeNetworks(ctx, sandboxID, ""); err != nil {
		return err
	}
	d.unlink(sandboxID)
	return d.layout.removeRun(sandboxID)
}

// Forget implements actors.Runtime.
func (d *Docker) Forget(sandboxID string) error { return d.layout.removeHistory(sandboxID) }

// What an engine refuses in passing is tried again this often, with delays that double: for 6 s in all.
const (
	tries    = 8
	tryDelay = 50 * time.Millisecond
)

// passing tries a call again that may be made twice without harm, and returns its last error. An error of ours with
// a code, or one marked backoff.Permanent, is final.
func passing(ctx context.Context, do func() error) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.Multiplier, wait.RandomizationFactor = tryDelay, 2, 0
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := do()
		if _, final := errors.AsType[*codedError](err); final {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithMaxTries(tries), backoff.WithBackOff(wait))
	return err
}

// removalInProgress: somebody else removes the container already, which is all we want.
func removalInProgress(err error) bool {
	return isConflict(err) && strings.Contains(err.Error(), "already in progress")
}
