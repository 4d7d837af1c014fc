package actors

import (
	"cmp"
	"context"
	"time"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// What RestartPolicy promises where it is silent.
const (
	restartOnFailure   = "on-failure"
	defaultMaxRestarts = 5
	defaultBackoff     = time.Second
)

// restarts is what the spec allows.
func restarts(spec *agboxv1.CreateSpec) lifecycle.Restarts {
	policy := spec.GetRestartPolicy()
	if policy.GetMode() != restartOnFailure {
		return lifecycle.Restarts{}
	}
	wait := defaultBackoff
	if policy.Backoff != nil {
		wait = policy.Backoff.AsDuration()
	}
	return lifecycle.Restarts{Max: cmp.Or(policy.MaxRestarts, defaultMaxRestarts), Backoff: wait}
}

// waitUntil returns at the time, or when ctx ends.
func (s *System) waitUntil(ctx context.Context, at time.Time) {
	for s.now().Before(at) {
		select {
		case <-time.After(s.sleep(at)):
		case <-ctx.Done():
			return
		}
	}
}

// restart ends what is left of the crashed sandbox, and starts it again.
func (s *System) restart(ctx context.Context, e *entry, report func(runtime.Progress)) (runtime.Started, error) {
	if err := ctx.Err(); err != nil {
		return runtime.Started{}, err
	}
	if err := s.runtime.Halt(ctx, e.id); err != nil {
		return runtime.Started{}, err
	}
	return s.runtime.Resume(ctx, e.id, e.spec, report)
}
