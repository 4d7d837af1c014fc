package actors

import (
	"context"
	"fmt"
)

// Use makes a lazy sandbox that was never used, or waits for whoever is making it, and does nothing for any other. It
// fails as the making did.
func (s *System) Use(ctx context.Context, id string) error {
	_, err := s.entry(id)
	return err
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
