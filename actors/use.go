package actors

import (
	"context"

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
