package actors

import (
	"context"
	"fmt"

	"github.com/agbox-dev/agbox/actors/lifecycle"
)

// Use makes a lazy sandbox that was never used, or waits for whoever is making it, and does nothing for any other. A
// *lifecycle.Refusal tells why it could not be made.
func (s *System) Use(ctx context.Context, id string) error {
	e, err := s.entry(id)
	if err != nil {
		return err
	}
	state, err := e.load(s.db)
	if err != nil || !state.Lazy {
		return err
	}
	if s.closing.Load() {
		return ErrShuttingDown
	}
	return s.request(ctx, e, newRequest(lifecycle.Use{})).err
}

// Quiet runs do while no operation changes the sandbox in the runtime: what is asked of the sandbox meanwhile is accepted
// and waits. do must be bounded.
func (s *System) Quiet(ctx context.Context, id string, do func(View) error) error {
	e, err := s.entry(id)
	if err != nil {
		return err
	}
	select {
	case <-e.gate:
	case <-ctx.Done():
		return fmt.Errorf("sandbox %s is busy: %w", id, context.Cause(ctx))
	}
	defer func() { e.gate <- struct{}{} }()
	view, err := s.Sandbox(id)
	if err != nil {
		return err
	}
	return do(view)
}
