package runtime_test

import (
	"context"
	"errors"
	"testing"

	"github.com/agbox-dev/agbox/actors/runtime"
)

// TestPids: whoever waits learns the pid, before or after it is known, and nothing stays of a command that has ended.
func TestPids(t *testing.T) {
	t.Parallel()
	var pids runtime.Pids
	waited := make(chan int, 1)
	go func() {
		pid, _ := pids.Await(t.Context(), "a")
		waited <- pid
	}()
	pids.Set("a", 7)
	if got := <-waited; got != 7 {
		t.Errorf("who waits learns of pid %d, want 7", got)
	}
	if pid, err := pids.Await(t.Context(), "a"); pid != 7 || err != nil || pids.Of("a") != 7 {
		t.Errorf("%d, %v, want 7", pid, err)
	}
	pids.Forget("a")
	if pids.Of("a") != 0 {
		t.Error("the pid of a command that has ended is still told")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pids.Await(gone, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}
