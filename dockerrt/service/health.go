package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	dockercontainer "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/agbox-dev/agbox/dockerrt/container"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/oplog"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// What Docker takes for a healthcheck that leaves these out, and how long a service may take at most, whatever its
// healthcheck allows.
const (
	healthInterval = 30 * time.Second
	healthTimeout  = 30 * time.Second
	healthRetries  = 3
	healthBound    = 5 * time.Minute
)

// patience is how long a service may take until it is healthy: as long as its check may fail.
func patience(check *agboxv1.HealthcheckConfig) time.Duration {
	or := func(d, other time.Duration) time.Duration {
		if d == 0 {
			return other
		}
		return d
	}
	retries := time.Duration(check.GetRetries())
	if retries == 0 {
		retries = healthRetries
	}
	once := or(check.GetInterval().AsDuration(), healthInterval) + or(check.GetTimeout().AsDuration(), healthTimeout)
	if retries > healthBound/once {
		return healthBound
	}
	return min(check.GetStartPeriod().AsDuration()+(retries+1)*once, healthBound)
}

// checked reports whether Docker watches the service's health.
func checked(service *agboxv1.ServiceSpec) bool {
	test := service.GetHealthcheck().GetTest()
	return len(test) > 0 && test[0] != "NONE"
}

// awaitHealthy returns once the service, which was started, is healthy; one without a healthcheck only has to run. It
// fails with what the check and the service said last.
func (ss *Services) awaitHealthy(ctx context.Context, sandboxID string, service *agboxv1.ServiceSpec) (err error) {
	wanted := "healthy"
	if !checked(service) {
		wanted = "running"
	}
	defer oplog.Step(ctx, wanted, "service %s", service.Name)(&err)
	found, err := ss.serviceContainer(ctx, sandboxID, service.Name)
	if err != nil {
		return err
	}
	bound := patience(service.Healthcheck)
	waiting, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	messages, broken := ss.engine.Events(waiting, events.ListOptions{Filters: filters.NewArgs(
		filters.Arg("container", found.ID),
		filters.Arg("event", string(events.ActionHealthStatus)), filters.Arg("event", string(events.ActionDie)),
	)})
	var seen *dockercontainer.HealthcheckResult
	for {
		state, err := ss.healthOf(ctx, found.ID)
		seen = noteChecks(ctx, service.Name, state, seen)
		switch {
		case err != nil:
			return err
		case !state.Running:
			return engine.Coded(codeServiceExited, "it %s%s", container.Ended(state), ss.lastWords(ctx, found.ID, state))
		case !checked(service) || state.Health != nil && state.Health.Status == dockercontainer.Healthy:
			return nil
		case state.Health != nil && state.Health.Status == dockercontainer.Unhealthy:
			return engine.Coded(codeServiceUnhealthy, "it is unhealthy after %d checks%s", state.Health.FailingStreak, ss.lastWords(ctx, found.ID, state))
		}
		select {
		case <-messages:
		case err := <-broken:
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, context.DeadlineExceeded):
				return engine.Coded(codeServiceUnhealthy, "it was not healthy within %s%s", bound, ss.lastWords(ctx, found.ID, state))
			}
			return fmt.Errorf("cannot follow its health: %w", err)
		}
	}
}

func (ss *Services) healthOf(ctx context.Context, containerID string) (*dockercontainer.State, error) {
	ctx, cancel := ss.engine.Read(ctx)
	defer cancel()
	found, err := ss.engine.ContainerInspect(ctx, containerID)
	if err != nil {
		return nil, fmt.Errorf("cannot inspect its container: %w", err)
	}
	return found.State, nil
}

// noteChecks notes the checks since the one that was seen last, where they differ from the one before, and returns
// the last one. Docker keeps five.
func noteChecks(ctx context.Context, service string, state *dockercontainer.State, seen *dockercontainer.HealthcheckResult) *dockercontainer.HealthcheckResult {
	if state == nil || state.Health == nil {
		return seen
	}
	for _, check := range state.Health.Log {
		if seen != nil && !check.Start.After(seen.Start) {
			continue
		}
		if seen == nil || check.ExitCode != seen.ExitCode || check.Output != seen.Output {
			oplog.Printf(ctx, "service %s: its check ended with %d after %d ms: %s", service, check.ExitCode,
				check.End.Sub(check.Start).Milliseconds(), oplog.Redact(ctx, engine.Quote(check.Output)))
		}
		seen = check
	}
	return seen
}

// lastWords is what the healthcheck and the service said last, for an error message.
func (ss *Services) lastWords(ctx context.Context, containerID string, state *dockercontainer.State) string {
	var text strings.Builder
	if state.Health != nil && len(state.Health.Log) > 0 {
		last := state.Health.Log[len(state.Health.Log)-1]
		fmt.Fprintf(&text, "; the last check ended with %d: %s", last.ExitCode, engine.Quote(last.Output))
	}
	fmt.Fprintf(&text, "; the end of its log: %s", ss.engine.Tail(ctx, containerID, previousEnd(state)))
	return text.String()
}

// previousEnd is when the life before this one of a container that runs ended, "" where there was none. When a life began, Docker
// tells only after its first words.
func previousEnd(state *dockercontainer.State) string {
	if at, err := time.Parse(time.RFC3339Nano, state.FinishedAt); err != nil || !state.Running || at.Year() <= 1 {
		return ""
	}
	return state.FinishedAt
}
