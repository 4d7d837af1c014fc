package actors

import (
	"cmp"
	"context"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// served tells how the start of an optional service came out.
type served struct {
	name string
	err  error
}

// serve starts the optional services that are to be started, each by itself, and gives up others that are being started.
func (s *sandbox) serve(c actor.Context) {
	wanted := map[string]bool{}
	for _, service := range s.policy().ServicesToStart(s.state) {
		wanted[service.Name] = true
		if s.serving[service.Name] != nil {
			continue
		}
		again := s.state.Services[service.Name] == lifecycle.ServiceAgain
		ctx, cancel := context.WithCancel(s.system.working)
		s.serving[service.Name] = cancel
		system, e, self := s.system, s.entry, c.Self()
		system.work.Go(func() {
			defer cancel()
			err := system.startService(ctx, e, self, service, again)
			if ctx.Err() == nil {
				system.actors.Root.Send(self, &served{service.Name, err})
			}
		})
	}
	s.stopServing(wanted)
}

// stopServing gives up the services that are being started and are not wanted any more.
func (s *sandbox) stopServing(wanted map[string]bool) {
	for name, cancel := range s.serving {
		if !wanted[name] {
			cancel()
			delete(s.serving, name)
		}
	}
}

func (s *sandbox) served(c actor.Context, m *served) {
	if s.serving[m.name] == nil {
		return
	}
	report := lifecycle.ServiceReported{Service: m.name}
	if m.err != nil {
		report.Code, report.Message = cmp.Or(errorCode(m.err), runtime.CodeServiceFailed), m.err.Error()
	}
	s.take(c, []*step{s.fact(c.Self(), m, report)})
}

// startService returns once the service is healthy. Only its start keeps operations on the sandbox waiting.
func (s *System) startService(ctx context.Context, e *entry, pid *actor.PID, service *agboxv1.ServiceSpec, again bool) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = s.panicked("service "+service.Name, e.id, reason)
		}
	}()
	if !again {
		err := s.retryWhileUnreachable(ctx, func() error { return s.runtime.PrepareService(ctx, e.id, service) })
		if err != nil {
			return err
		}
	}
	err = s.retryWhileUnreachable(ctx, func() error {
		return s.alone(ctx, e, pid, func() error { return s.runtime.StartService(ctx, e.id, e.spec, service, again) })
	})
	if err != nil {
		return err
	}
	return s.retryWhileUnreachable(ctx, func() error { return s.runtime.AwaitService(ctx, e.id, service) })
}
