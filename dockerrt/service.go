package dockerrt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	dockernetwork "github.com/docker/docker/api/types/network"
	"golang.org/x/sync/errgroup"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/image"
	"github.com/agbox-dev/agbox/oplog"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Codes of SERVICE_FAILED events.
const (
	codeServiceUnhealthy = "SERVICE_UNHEALTHY"
	codeServiceExited    = "SERVICE_EXITED"
	codeServiceHook      = "SERVICE_HOOK_FAILED"
	codeServiceMissing   = "SERVICE_MISSING"
)

// serviceLog bounds what Docker keeps of a service's output.
var serviceLog = container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "10m", "max-file": "3"}}

// each does something for every service at the same time. It returns the first error, which names its service, and lets
// the others end early then.
func each(ctx context.Context, services []*agboxv1.ServiceSpec, do func(context.Context, *agboxv1.ServiceSpec) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, service := range services {
		group.Go(func() error {
			if err := do(ctx, service); err != nil {
				return fmt.Errorf("service %s: %w", service.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// PrepareService implements runtime.Runtime.
func (d *Docker) PrepareService(ctx context.Context, sandboxID string, service *agboxv1.ServiceSpec) error {
	ctx = d.oplogs.Begin(ctx, sandboxID, "serve", nil, service)
	_, err := d.ensure(ctx, service.Image, service.PullPolicy, func(image.Progress) {})
	return engine.Unreachable(err)
}

// StartService implements runtime.Runtime.
func (d *Docker) StartService(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, service *agboxv1.ServiceSpec, again bool) error {
	ctx = d.oplogs.BeginSpec(ctx, sandboxID, "serve", spec)
	return engine.RetryTransient(ctx, func() error {
		if !again {
			if err := d.createService(ctx, sandboxID, spec, service); err != nil {
				return err
			}
		}
		return d.startService(ctx, sandboxID, service)
	})
}

// AwaitService implements runtime.Runtime.
func (d *Docker) AwaitService(ctx context.Context, sandboxID string, service *agboxv1.ServiceSpec) error {
	ctx = d.oplogs.Begin(ctx, sandboxID, "serve", nil, service)
	if err := d.awaitHealthy(ctx, sandboxID, service); err != nil {
		return engine.Unreachable(err)
	}
	return engine.Unreachable(d.runHooks(ctx, sandboxID, service))
}

// createService makes the service's container, unless it is there.
func (d *Docker) createService(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, service *agboxv1.ServiceSpec) (err error) {
	if _, err := d.serviceContainer(ctx, sandboxID, service.Name); err == nil || !errors.Is(err, engine.ErrMissing) {
		return err
	}
	defer oplog.Step(ctx, "made", "container of service %s", service.Name)(&err)
	found, err := d.images.Ensure(ctx, service.Image, image.Never, nil) // it was pulled before
	if err != nil {
		return err
	}
	ctx, cancel := d.api.Write(ctx)
	defer cancel()
	config := &container.Config{
		Image:       found.ID,
		Env:         engine.Environ(service.Envs),
		Cmd:         service.Command,
		User:        service.User,
		Healthcheck: healthConfig(service.Healthcheck),
		Labels:      d.api.ContainerLabels(sandboxID, engine.ComponentService, service.Name, spec.Labels, found),
	}
	host := confine(service)
	host.Runtime = spec.Runtime
	host.NetworkMode = container.NetworkMode(engine.NetworkName(sandboxID))
	host.DNS = d.networks.NameServers(spec.Network)
	host.LogConfig = serviceLog
	networking := &dockernetwork.NetworkingConfig{EndpointsConfig: map[string]*dockernetwork.EndpointSettings{
		engine.NetworkName(sandboxID): {Aliases: []string{service.Name}},
	}}
	_, err = d.api.ContainerCreate(ctx, config, host, networking, nil, engine.ServiceName(sandboxID, service.Name))
	if engine.IsConflict(err) {
		_, err = d.api.ContainerCreate(ctx, config, host, networking, nil, engine.UniqueServiceName(sandboxID, service.Name))
	}
	if err != nil {
		return explained(fmt.Errorf("cannot create its container: %w", err))
	}
	return nil
}

func healthConfig(check *agboxv1.HealthcheckConfig) *container.HealthConfig {
	if check == nil {
		return &container.HealthConfig{Test: []string{"NONE"}} // the image's own is not what was asked for
	}
	return &container.HealthConfig{
		Test:     check.Test,
		Interval: check.Interval.AsDuration(), Timeout: check.Timeout.AsDuration(),
		StartPeriod: check.StartPeriod.AsDuration(), StartInterval: check.StartInterval.AsDuration(),
		Retries: int(check.Retries),
	}
}

// serviceContainer finds the service's container by its labels. It fails with engine.ErrMissing.
func (d *Docker) serviceContainer(ctx context.Context, sandboxID, service string) (container.Summary, error) {
	ctx, cancel := d.api.Read(ctx)
	defer cancel()
	found, err := d.api.Containers(ctx, sandboxID, true, engine.LabelComponent+"="+engine.ComponentService, engine.LabelService+"="+service)
	if err != nil {
		return container.Summary{}, err
	}
	if len(found) == 0 {
		return container.Summary{}, engine.Coded(codeServiceMissing, "%w: the container of service %s", engine.ErrMissing, service)
	}
	return found[0], nil
}

func (d *Docker) startService(ctx context.Context, sandboxID string, service *agboxv1.ServiceSpec) (err error) {
	defer oplog.Step(ctx, "started", "service %s", service.Name)(&err)
	found, err := d.serviceContainer(ctx, sandboxID, service.Name)
	if err != nil {
		return err
	}
	ctx, cancel := d.api.Write(ctx)
	defer cancel()
	if err := d.api.ContainerStart(ctx, found.ID, container.StartOptions{}); err != nil {
		return explained(fmt.Errorf("cannot start its container: %w", err))
	}
	return nil
}

// startServices starts the required services when it is their turn.
func (d *Docker) startServices(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) error {
	if len(spec.RequiredServices) == 0 {
		return nil
	}
	give, err := d.take(ctx)
	if err != nil {
		return err
	}
	defer give()
	return each(ctx, spec.RequiredServices, func(ctx context.Context, service *agboxv1.ServiceSpec) error {
		return d.startService(ctx, sandboxID, service)
	})
}

// serve waits until every required service is healthy, and reports those whose hooks need no primary.
func (d *Docker) serve(ctx context.Context, sandboxID string, services []*agboxv1.ServiceSpec, hooks bool, report func(runtime.Progress)) error {
	return each(ctx, services, func(ctx context.Context, service *agboxv1.ServiceSpec) error {
		err := d.awaitHealthy(ctx, sandboxID, service)
		switch {
		case err != nil && ctx.Err() == nil:
			report(serviceFailed(service, err))
		case err == nil && (!hooks || len(service.PostStartOnPrimary) == 0):
			report(runtime.ServiceReported{Service: service.Name})
		}
		return err
	})
}

// hook runs the required services' hooks, one service after the other, and reports these.
func (d *Docker) hook(ctx context.Context, sandboxID string, services []*agboxv1.ServiceSpec, report func(runtime.Progress)) error {
	for _, service := range services {
		if len(service.PostStartOnPrimary) == 0 {
			continue
		}
		if err := d.runHooks(ctx, sandboxID, service); err != nil {
			report(serviceFailed(service, err))
			return fmt.Errorf("service %s: %w", service.Name, err)
		}
		report(runtime.ServiceReported{Service: service.Name})
	}
	return nil
}

func serviceFailed(service *agboxv1.ServiceSpec, err error) runtime.ServiceReported {
	return runtime.ServiceReported{Service: service.Name, Code: cmp.Or(engine.Code(err), runtime.CodeServiceFailed), Message: err.Error()}
}

// stopServices ends every service container, at once without a grace. Those that are gone already do not matter.
func (d *Docker) stopServices(ctx context.Context, sandboxID string, grace time.Duration) error {
	running, err := d.api.Containers(ctx, sandboxID, false, engine.LabelComponent+"="+engine.ComponentService)
	if err != nil || len(running) == 0 {
		return err
	}
	errs, began := make([]error, len(running)), time.Now()
	var group sync.WaitGroup
	for i, c := range running {
		group.Go(func() {
			if seconds := int((grace + time.Second - 1) / time.Second); seconds > 0 {
				errs[i] = d.api.ContainerStop(ctx, c.ID, container.StopOptions{Timeout: &seconds})
			} else {
				errs[i] = d.api.ContainerKill(ctx, c.ID, "KILL")
			}
			if engine.IsNotFound(errs[i]) || errs[i] != nil && strings.Contains(errs[i].Error(), "is not running") {
				errs[i] = nil
			}
			oplog.Stepped(ctx, began, errs[i], "stopped", "service %s", c.Labels[engine.LabelService])
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
