package keyed_test

import (
	"context"
	"errors"
	"testing"

	"github.com/agbox-dev/agbox/keyed"
)

// TestMutex: one at a time for each key, others go their own way, who gives up waits no more, and nothing is left at rest.
func TestMutex(t *testing.T) {
	t.Parallel()
	var m keyed.Mutex[string]
	unlock, err := m.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := m.Lock(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("left")
	cancel(cause)
	if _, err := m.Lock(gone, "a"); !errors.Is(err, cause) {
		t.Errorf("who has left gets %v", err)
	}
	turn := make(chan error)
	go func() {
		unlock, err := m.Lock(t.Context(), "a")
		if err == nil {
			unlock()
		}
		turn <- err
	}()
	unlock()
	if err := <-turn; err != nil {
		t.Error(err)
	}
	other()
	if n := m.Len(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}
