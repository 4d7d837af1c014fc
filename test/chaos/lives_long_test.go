//go:build long

package chaos_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/chaos/checker"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// turn is a part of a sandbox's life beside create, exec, stop, resume and delete: what is asked of it, again whenever
// the daemon died under the request, and where that leads.
type turn struct {
	what string
	// as is the operation that the checker counts it for, "" for none.
	as   checker.Operation
	ask  func(l *life) error
	want agboxv1.SandboxState
}

const (
	paused  = agboxv1.SandboxState_SANDBOX_STATE_PAUSED
	dormant = agboxv1.SandboxState_SANDBOX_STATE_DORMANT
)

// lives are whole lives but for the deletion at their ends.
var lives = []struct {
	name  string
	spec  func(spec *agboxv1.CreateSpec)
	first agboxv1.SandboxState
	turns []turn
}{
	{"lazy, paused and drained", func(spec *agboxv1.CreateSpec) { spec.Lazy = true }, dormant, []turn{
		{"first uses", checker.Resume, firstUses, ready},
		{"pause", checker.Pause, func(l *life) error {
			_, err := l.client.PauseSandbox(l.ctx, &agboxv1.PauseSandboxRequest{SandboxId: l.id})
			return err
		}, paused},
		{"unpause", checker.Unpause, func(l *life) error {
			_, err := l.client.UnpauseSandbox(l.ctx, &agboxv1.UnpauseSandboxRequest{SandboxId: l.id})
			return err
		}, ready},
		{"drain", checker.Drain, func(l *life) error {
			_, err := l.client.DrainSandbox(l.ctx, &agboxv1.DrainSandboxRequest{SandboxId: l.id})
			return err
		}, stopped},
	}},
	{"lease", func(spec *agboxv1.CreateSpec) {
		spec.Lease = &agboxv1.LeaseSpec{Grace: durationpb.New(0), OnEnd: "stop"}
	}, stopped, nil},
	{"restart", func(spec *agboxv1.CreateSpec) {
		spec.Command = []string{"sh", "-c", "exit 3"}
		spec.RestartPolicy = &agboxv1.RestartPolicy{Mode: "on-failure", MaxRestarts: 1, Backoff: durationpb.New(1)}
	}, failed, nil},
}

// firstUses uses a lazy sandbox from several clients at once.
func firstUses(l *life) error {
	var group sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		group.Go(func() {
			id := fmt.Sprintf("use-%d-%s", i, l.id)
			_, errs[i] = l.client.CreateExec(l.ctx, &agboxv1.CreateExecRequest{SandboxId: l.id, ExecId: id, Command: []string{"true"}})
			if errors.Is(errs[i], raw.ErrExecIDAlreadyExists) {
				errs[i] = nil // an earlier try was accepted
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if errors.Is(err, raw.ErrUnavailable) {
			return err
		}
	}
	return errors.Join(errs...)
}

// reach waits until the sandbox is in that state and at rest, over the daemon's death.
func (l *life) reach(what string, want agboxv1.SandboxState) {
	l.t.Helper()
	for {
		response, err := l.client.WaitSandbox(l.ctx, &agboxv1.WaitSandboxRequest{SandboxId: l.id, States: []agboxv1.SandboxState{want, failed}})
		switch {
		case errors.Is(err, raw.ErrUnavailable):
			l.restart()
			continue
		case err != nil:
			l.t.Fatalf("%s: %v", what, err)
		case response.Sandbox.State != want:
			l.t.Errorf("%s ended with %v", what, response.Sandbox)
		}
		l.last = &agboxv1.SandboxEvent{Sequence: response.Sandbox.LastEventSequence}
		return
	}
}

// TestLongCrashInOtherLives kills the daemon after each commit of the lives that are not the usual one, the writing of its
// own tables at the start aside.
func TestLongCrashInOtherLives(t *testing.T) {
	t.Parallel()
	engine := dockertest.Engine(t)
	for _, kind := range lives {
		for n, crashed := 2, true; crashed; n += 2 {
			t.Run(fmt.Sprintf("%s, after commit %d", kind.name, n/2), func(t *testing.T) {
				l := newLife(t, engine)
				kind.spec(l.spec)
				if err := l.daemon.Start(l.ctx, fmt.Sprintf("AGBOX_CRASH_AT=%d", n)); err != nil {
					l.restart()
				}
				l.record.Ask(l.id, checker.Create)
				if l.ask("create", func() error {
					_, err := l.client.CreateSandbox(l.ctx, &agboxv1.CreateSandboxRequest{SandboxId: l.id, CreateSpec: l.spec})
					return err
				}) {
					l.record.Accepted(l.id, checker.Create)
				}
				if kind.first == stopped {
					l.record.Ask(l.id, checker.Stop) // by itself
				}
				if kind.first == failed {
					l.record.Killed(l.id) // it is meant to fail
				}
				l.reach("create", kind.first)
				for _, turn := range kind.turns {
					if turn.as != "" {
						l.record.Ask(l.id, turn.as)
					}
					l.ask(turn.what, func() error { return turn.ask(l) })
					l.reach(turn.what, turn.want)
				}
				l.operate(checker.Delete, deleted)
				l.rest()
				l.end()
				crashed = l.crashed
			})
			if n > 100 {
				t.Fatal("there is no end to it")
			}
		}
	}
}
