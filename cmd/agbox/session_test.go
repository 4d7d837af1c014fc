package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestTermIsHeeded: one TERM is enough to leave, also where no exec was accepted, or where it does not end.
func TestTermIsHeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancelCause(t.Context())
		signals := make(chan os.Signal, 1)
		s := &session{signals: signals, accepted: make(chan string), leave: leave, patience: termPatience}
		begun := time.Now()
		signals <- syscall.SIGTERM
		s.obey(ctx)
		if hit, ok := errors.AsType[*interrupt](context.Cause(ctx)); !ok || hit.code() != 143 || time.Since(begun) != termPatience {
			t.Errorf("after %s it ends with %v", time.Since(begun), context.Cause(ctx))
		}
	})
}
