package server_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	"github.com/agbox-dev/agbox/sdk"
)

// TestWaitsEnd: every wait of the Go client ends when what it waits for can come no more, by the operation's own failure
// or by another that took its place, and tells which.
func TestWaitsEnd(t *testing.T) {
	t.Parallel()
	var fails atomic.Value // the call that does
	fails.Store("")
	fake := actorstest.New()
	fake.Run = fake.UntilCancelled
	fake.Before = func(_ context.Context, call string) error {
		if verb, _, _ := strings.Cut(call, " "); verb == fails.Load() {
			return errors.New("the engine says no")
		}
		return nil
	}
	f := startFleet(t, actors.Config{}, fake)
	c, err := sdk.New(sdk.WithSocket(f.Socket()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	quiet := sdk.WithWait(false)
	instead := func(want sdk.State) func(error) bool {
		return func(err error) bool {
			got, ok := errors.AsType[*sdk.TransitionError](err)
			return ok && got.State == want && (got.Code != "") == strings.Contains(err.Error(), "the engine says no")
		}
	}
	failed := func(err error) bool {
		got, ok := errors.AsType[*sdk.SandboxFailedError](err)
		return ok && strings.Contains(got.Message, "the engine says no")
	}
	for name, tt := range map[string]struct {
		before func(id string) error
		fails  string
		do     func(id string) error
		is     func(error) bool
	}{
		"pause":   {nil, "pause", func(id string) error { return c.Pause(ctx, id) }, instead(sdk.StateReady)},
		"unpause": {func(id string) error { return c.Pause(ctx, id) }, "unpause", func(id string) error { return c.Unpause(ctx, id) }, instead(sdk.StatePaused)},
		"stop":    {nil, "stop", func(id string) error { return c.Stop(ctx, id) }, failed},
		"kill":    {nil, "halt", func(id string) error { return c.Stop(ctx, id, sdk.WithForce()) }, failed},
		"drain":   {nil, "stop", func(id string) error { return c.Drain(ctx, id, 0) }, failed},
		"resume":  {func(id string) error { return c.Stop(ctx, id) }, "resume", func(id string) error { return c.Resume(ctx, id) }, failed},
		"delete":  {nil, "remove", func(id string) error { return c.Delete(ctx, id) }, failed},
		"stop of many": {nil, "stop", func(id string) error {
			_, err := c.StopSandboxes(ctx, sdk.Selection{Labels: map[string]string{"name": id}})
			return err
		}, failed},
		"resume of many": {func(id string) error { return c.Stop(ctx, id) }, "resume", func(id string) error {
			_, err := c.ResumeSandboxes(ctx, sdk.Selection{Labels: map[string]string{"name": id}})
			return err
		}, failed},
		"create": {nil, "create", func(id string) error {
			_, err := c.CreateSandbox(ctx, sdk.Spec{Image: "image"}, sdk.WithSandboxID(id+"-2"))
			return err
		}, failed},
		"create of a lazy one": {nil, "create", func(id string) error {
			_, err := c.CreateSandbox(ctx, sdk.Spec{Image: "image", Lazy: true}, sdk.WithSandboxID(id+"-3"))
			if err != nil {
				return err
			}
			return c.Resume(ctx, id+"-3")
		}, failed},
		"exec": {nil, "stop", func(id string) error {
			exec, err := c.CreateExec(ctx, id, []string{"sleep"})
			if err != nil || !failed(c.Stop(ctx, id)) {
				return err
			}
			_, err = c.WaitExec(ctx, exec)
			return err
		}, func(err error) bool {
			got, ok := errors.AsType[*sdk.ExecFailedError](err)
			return ok && strings.Contains(got.Message, "the engine says no")
		}},
		"drain that is overtaken by a deletion": {func(id string) error {
			_, err := c.CreateExec(ctx, id, []string{"sleep"})
			return err
		}, "", func(id string) error {
			done := make(chan error)
			go func() {
				_, _, err := c.WaitSandbox(ctx, id, 0, sdk.StateDraining)
				done <- errors.Join(err, c.Delete(ctx, id, quiet))
			}()
			return errors.Join(c.Drain(ctx, id, 0), <-done)
		}, func(err error) bool {
			_, ok := errors.AsType[*sdk.SandboxDeletedError](err)
			return ok
		}},
	} {
		t.Run(name, func(t *testing.T) {
			fails.Store("")
			id := strings.ReplaceAll(name, " ", "-") + "-box"
			f.create(id, map[string]string{"name": id})
			if tt.before != nil {
				if err := tt.before(id); err != nil {
					t.Fatal(err)
				}
			}
			fails.Store(tt.fails)
			if err := tt.do(id); !tt.is(err) {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}
