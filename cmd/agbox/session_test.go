package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// TestSignalBeforeAcceptance: one that comes while nobody knows the exec yet cancels it once it is known, also with -d, and is what
// the run ends with where none is accepted.
func TestSignalBeforeAcceptance(t *testing.T) {
	for name, refusal := range map[string]error{"accepted": nil, "refused": errRefused} {
		t.Run(name, func(t *testing.T) {
			s := startScribe(t)
			s.accept = func() (*agboxv1.CreateExecResponse, error) {
				heard := make(chan os.Signal, 1)
				signal.Notify(heard, syscall.SIGTERM)
				if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
					return nil, err
				}
				<-heard
				signal.Stop(heard) // which returns when whoever listens has got it, too
				return &agboxv1.CreateExecResponse{ExecId: "exec-1"}, refusal
			}
			var out strings.Builder
			code := run([]string{"sandbox", "exec", "-d", "box-1", "--", "true"}, stdio{in: strings.NewReader(""), out: &out, err: io.Discard})
			if code != 143 || out.String() != "" {
				t.Errorf("it exits with %d and says %q", code, out.String())
			}
			if cancel, cancelled := s.asked.(*agboxv1.CancelExecRequest); cancelled != (refusal == nil) || cancelled && cancel.ExecId != "exec-1" {
				t.Errorf("at last the daemon was asked for %v", s.asked)
			}
		})
	}
}

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
