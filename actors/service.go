package actors

import (
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

// serve starts the optional services of which nothing was told yet, each by itself, while the sandbox is READY, and
// gives up those that are being started when it is not.
func (s *sandbox) serve(c actor.Context) {
	if s.state.Phase != lifecycle.Ready || s.state.Operation != lifecycle.NoOperation {
		s.stopServing()
		return
	}
	for _, service := range s.entry.spec.GetOptionalServices() {
		state := s.state.Services[service.Name]
		if s.serving[service.Name] != nil || state == lifecycle.ServiceReady || state == lifecycle.ServiceFailed {
			continue
		}
		ctx, cancel := context.WithCancel(s.system.working)
		s.serving[service.Name] = cancel
		system, e, self := s.system, s.entry, c.Self()
		system.work.Go(func() {
			defer cancel()
			err := system.startService(ctx, e, service, state == lifecycle.ServiceAgain)
			if ctx.Err() == nil {
				system.actors.Root.Send(self, &served{service.Name, err})
			}
		})
	}
}

func (s *sandbox) stopServing() {
	for name, cancel := range s.serving {
		cancel()
		delete(s.serving, name)
	}
}

func (s *sandbox) served(c actor.Context, m *served) {
	if s.serving[m.name] == nil {
		return
	}
	report := lifecycle.ServiceReported{Service: m.name}
	if m.err != nil {
		failed := failure(lifecycle.NoOperation, m.err)
		report.Code, report.Message = failed.Code, failed.Message
		if report.Code == "" {
			report.Code = runtime.CodeServiceFailed
		}
	}
	s.take(c, []*step{s.fact(c.Self(), m, report)})
	if s.state.Services[m.name] != lifecycle.ServiceNew && s.state.Services[m.name] != lifecycle.ServiceAgain {
		delete(s.serving, m.name)
	}
}

// startService returns once the service is healthy. Only its start keeps operations on the sandbox waiting.
func (s *System) startService(ctx context.Context, e *entry, service *agboxv1.ServiceSpec, again bool) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = s.panicked("service "+service.Name, e.id, reason)
		}
	}()
	if !again {
		err := s.persistently(ctx, func() error { return s.runtime.PrepareService(ctx, e.id, service) })
		if err != nil {
			return err
		}
	}
	err = s.persistently(ctx, func() error {
		select {
		case <-e.gate:
			defer func() { e.gate <- struct{}{} }()
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return s.runtime.StartService(ctx, e.id, e.spec, service, again)
	})
	if err != nil {
		return err
	}
	return s.persistently(ctx, func() error { return s.runtime.AwaitService(ctx, e.id, service) })
}
