// Package service makes, starts and watches the containers that sandboxes have beside their primary.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	dockercontainer "github.com/docker/docker/api/types/container"
	dockernetwork "github.com/docker/docker/api/types/network"
	"golang.org/x/sync/errgroup"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/container"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/image"
	"github.com/agbox-dev/agbox/dockerrt/layout"
	"github.com/agbox-dev/agbox/dockerrt/links"
	"github.com/agbox-dev/agbox/dockerrt/network"
	"github.com/agbox-dev/agbox/dockerrt/queue"
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

// Rooms are what services stand on.
type Rooms struct {
	Engine   *engine.Client
	Images   *image.Store
	Networks *network.Networks
	Links    *links.Links
	Oplogs   *oplog.Logs
}

// Services are those of all sandboxes.
type Services struct {
	layout   layout.Layout
	engine   *engine.Client
	images   *image.Store
	networks *network.Networks
	links    *links.Links
	oplogs   *oplog.Logs
	queue    *queue.Queue
	grace    time.Duration
}

// New returns the services of one engine. They wait for their turns to start, and their hooks have grace from TERM to KILL.
func New(on Rooms, layout layout.Layout, queue *queue.Queue, grace time.Duration) *Services {
	return &Services{layout, on.Engine, on.Images, on.Networks, on.Links, on.Oplogs, queue, grace}
}

// serviceLog bounds what Docker keeps of a service's output.
var serviceLog = dockercontainer.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "10m", "max-file": "3"}}

// Each does something for every service at the same time. It returns the first error, which names its service, and lets
// the others end early then.
func Each(ctx context.Context, services []*agboxv1.ServiceSpec, do func(context.Context, *agboxv1.ServiceSpec) error) error {
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
func (ss *Services) PrepareService(ctx context.Context, sandboxID string, service *agboxv1.ServiceSpec) error {
	ctx = ss.oplogs.Begin(ctx, sandboxID, "serve", nil, service)
	_, err := ss.images.EnsureNoted(ctx, service.Image, service.PullPolicy, func(image.Progress) {})
	return engine.Unreachable(err)
}

// StartService implements runtime.Runtime.
func (ss *Services) StartService(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, service *agboxv1.ServiceSpec, again bool) error {
	ctx = ss.oplogs.BeginSpec(ctx, sandboxID, "serve", spec)
	return engine.RetryTransient(ctx, func() error {
		if !again {
			if err := ss.CreateService(ctx, sandboxID, spec, service); err != nil {
				return err
			}
		}
		return ss.startService(ctx, sandboxID, service)
	})
}

// AwaitService implements runtime.Runtime.
func (ss *Services) AwaitService(ctx context.Context, sandboxID string, service *agboxv1.ServiceSpec) error {
	ctx = ss.oplogs.Begin(ctx, sandboxID, "serve", nil, service)
	if err := ss.awaitHealthy(ctx, sandboxID, service); err != nil {
		return engine.Unreachable(err)
	}
	return engine.Unreachable(ss.runHooks(ctx, sandboxID, service))
}

// CreateService makes the service's container, unless it is there.
func (ss *Services) CreateService(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, service *agboxv1.ServiceSpec) (err error) {
	if _, err := ss.serviceContainer(ctx, sandboxID, service.Name); err == nil || !errors.Is(err, engine.ErrMissing) {
		return err
	}
	defer oplog.Step(ctx, "made", "container of service %s", service.Name)(&err)
	found, err := ss.images.Ensure(ctx, service.Image, image.Never, nil) // it was pulled before
	if err != nil {
		return err
	}
	ctx, cancel := ss.engine.Write(ctx)
	defer cancel()
	config := &dockercontainer.Config{
		Image:       found.ID,
		Env:         engine.Environ(service.Envs),
		Cmd:         service.Command,
		User:        service.User,
		Healthcheck: healthConfig(service.Healthcheck),
		Labels:      ss.engine.ContainerLabels(sandboxID, engine.ComponentService, service.Name, spec.Labels, found),
	}
	host := container.Confine(service)
	host.Runtime = spec.Runtime
	host.NetworkMode = dockercontainer.NetworkMode(ss.networks.Name(sandboxID))
	host.DNS = ss.networks.NameServers(spec.Network)
	host.LogConfig = serviceLog
	networking := &dockernetwork.NetworkingConfig{EndpointsConfig: map[string]*dockernetwork.EndpointSettings{
		ss.networks.Name(sandboxID): {Aliases: []string{service.Name}},
	}}
	_, err = ss.engine.ContainerCreate(ctx, config, host, networking, nil, engine.ServiceName(sandboxID, service.Name))
	if engine.IsConflict(err) {
		_, err = ss.engine.ContainerCreate(ctx, config, host, networking, nil, engine.UniqueServiceName(sandboxID, service.Name))
	}
	if err != nil {
		return container.Explained(fmt.Errorf("cannot create its container: %w", err))
	}
	return nil
}

func healthConfig(check *agboxv1.HealthcheckConfig) *dockercontainer.HealthConfig {
	if check == nil {
		return &dockercontainer.HealthConfig{Test: []string{"NONE"}} // the image's own is not what was asked for
	}
	return &dockercontainer.HealthConfig{
		Test:     check.Test,
		Interval: check.Interval.AsDuration(), Timeout: check.Timeout.AsDuration(),
		StartPeriod: check.StartPeriod.AsDuration(), StartInterval: check.StartInterval.AsDuration(),
		Retries: int(check.Retries),
	}
}

// serviceContainer finds the service's container by its labels. It fails with engine.ErrMissing.
func (ss *Services) serviceContainer(ctx context.Context, sandboxID, service string) (dockercontainer.Summary, error) {
	ctx, cancel := ss.engine.Read(ctx)
	defer cancel()
	found, err := ss.engine.Containers(ctx, sandboxID, true, engine.LabelComponent+"="+engine.ComponentService, engine.LabelService+"="+service)
	if err != nil {
		return dockercontainer.Summary{}, err
	}
	if len(found) == 0 {
		return dockercontainer.Summary{}, engine.Coded(codeServiceMissing, "%w: the container of service %s", engine.ErrMissing, service)
	}
	return found[0], nil
}

func (ss *Services) startService(ctx context.Context, sandboxID string, service *agboxv1.ServiceSpec) (err error) {
	defer oplog.Step(ctx, "started", "service %s", service.Name)(&err)
	found, err := ss.serviceContainer(ctx, sandboxID, service.Name)
	if err != nil {
		return err
	}
	ctx, cancel := ss.engine.Write(ctx)
	defer cancel()
	if err := ss.engine.ContainerStart(ctx, found.ID, dockercontainer.StartOptions{}); err != nil {
		return container.Explained(fmt.Errorf("cannot start its container: %w", err))
	}
	return nil
}

// StartRequired starts the required services when it is their turn.
func (ss *Services) StartRequired(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) error {
	if len(spec.RequiredServices) == 0 {
		return nil
	}
	give, err := ss.queue.Take(ctx, nil)
	if err != nil {
		return err
	}
	defer give()
	return Each(ctx, spec.RequiredServices, func(ctx context.Context, service *agboxv1.ServiceSpec) error {
		return ss.startService(ctx, sandboxID, service)
	})
}

// AwaitRequired waits until every required service is healthy, and reports those whose hooks need no primary.
func (ss *Services) AwaitRequired(ctx context.Context, sandboxID string, services []*agboxv1.ServiceSpec, hooks bool, report func(runtime.Progress)) error {
	return Each(ctx, services, func(ctx context.Context, service *agboxv1.ServiceSpec) error {
		err := ss.awaitHealthy(ctx, sandboxID, service)
		switch {
		case err != nil && ctx.Err() == nil:
			report(serviceFailed(service, err))
		case err == nil && (!hooks || len(service.PostStartOnPrimary) == 0):
			report(runtime.ServiceReported{Service: service.Name})
		}
		return err
	})
}

// HookRequired runs the required services' hooks, one service after the other, and reports these.
func (ss *Services) HookRequired(ctx context.Context, sandboxID string, services []*agboxv1.ServiceSpec, report func(runtime.Progress)) error {
	for _, service := range services {
		if len(service.PostStartOnPrimary) == 0 {
			continue
		}
		if err := ss.runHooks(ctx, sandboxID, service); err != nil {
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

// StopServices ends every service container, at once without a grace. Those that are gone already do not matter.
func (ss *Services) StopServices(ctx context.Context, sandboxID string, grace time.Duration) error {
	running, err := ss.engine.Containers(ctx, sandboxID, false, engine.LabelComponent+"="+engine.ComponentService)
	if err != nil || len(running) == 0 {
		return err
	}
	errs, began := make([]error, len(running)), time.Now()
	var group sync.WaitGroup
	for i, c := range running {
		group.Go(func() {
			if seconds := int((grace + time.Second - 1) / time.Second); seconds > 0 {
				errs[i] = ss.engine.ContainerStop(ctx, c.ID, dockercontainer.StopOptions{Timeout: &seconds})
			} else {
				errs[i] = ss.engine.ContainerKill(ctx, c.ID, "KILL")
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
