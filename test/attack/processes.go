package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/agbox-dev/agbox/sdk"
)

// processAttacks are by what runs in a sandbox: it will not end, or takes all that there is.
var processAttacks = []*attack{
	{point: "B3", name: "escape from a timeout", play: func(ctx context.Context, b *box) error {
		for _, command := range escapes {
			result, err := b.run(ctx, command, sdk.WithTimeout(time.Second))
			if err == nil && !result.TimedOut {
				err = fmt.Errorf("%q ended with %d and no timeout: %.300s", command, result.ExitCode, result.Stderr)
			}
			if err == nil {
				err = b.alone(ctx)
			}
			if err != nil {
				return err
			}
		}
		return b.works(ctx)
	}},
	{point: "B3", name: "escape from a cancel", play: func(ctx context.Context, b *box) error {
		for _, command := range escapes {
			exec, err := b.hold(ctx, command)
			if err == nil {
				err = b.cancel(ctx, exec)
			}
			if err == nil {
				err = b.alone(ctx)
			}
			if err != nil {
				return fmt.Errorf("%q: %w", command, err)
			}
		}
		return b.works(ctx)
	}},
	{point: "B4", name: "more memory than there is", play: func(ctx context.Context, b *box) error {
		for range 3 {
			result, err := b.run(ctx, []string{"/inside", "hog", "300"}, sdk.WithTimeout(10*time.Second))
			if err == nil && !result.OOM {
				err = fmt.Errorf("it ended with %d and not for want of memory: %.300s", result.ExitCode, result.Stderr)
			}
			if err != nil {
				return err
			}
		}
		return b.works(ctx)
	}},
	{point: "B4", name: "600 shells", limits: sdk.Limits{MemoryLimit: 64 << 20, PidsLimit: 700, CPULimit: 1}, play: func(ctx context.Context, b *box) error {
		_, err := b.run(ctx, []string{"sh", "-c", `i=0; while [ $i -lt 600 ]; do sh -c 'x=$(seq 1 4000); sleep 60' & i=$((i+1)); done; wait`}, sdk.WithTimeout(4*time.Second))
		if err := ended(err); err != nil {
			return err
		}
		return b.works(ctx)
	}},
	{point: "B4", name: "a fork bomb", play: func(ctx context.Context, b *box) error {
		// The leader takes no part in it: one that ends by itself may leave others behind.
		exec, err := b.hold(ctx, []string{"sh", "-c", "/inside bomb 2>/dev/null & exec sleep 600"}, sdk.WithTimeout(2*time.Second))
		if err != nil {
			return err
		}
		if err := ended(within(ctx, patience, "the end of the bomb", func(ctx context.Context) error {
			_, err := b.SDK.WaitExec(ctx, exec)
			return err
		})); err != nil {
			return err
		}
		if err := b.alone(ctx); err != nil {
			return err
		}
		return b.works(ctx)
	}},
	{point: "B6", name: "every inotify instance", limits: sdk.Limits{MemoryLimit: 64 << 20, PidsLimit: 128, CPULimit: 1}, play: func(ctx context.Context, b *box) error {
		for _, user := range []string{"0", "1000"} {
			if _, err := b.hold(ctx, []string{"/inside", "inotify"}, sdk.WithUser(user), sdk.WithTimeout(3*time.Second)); err != nil {
				return err
			}
		}
		for range 3 {
			exec, err := b.hold(ctx, []string{"sh", "-c", "sleep 0.2; echo held; cat"}, sdk.WithStdin(), sdk.WithUser("1000"))
			if err == nil {
				err = b.cancel(ctx, exec)
			}
			if err != nil {
				return err
			}
		}
		return b.works(ctx)
	}},
	{point: "B6", name: "every terminal", play: func(ctx context.Context, b *box) error {
		if _, err := b.hold(ctx, []string{"/inside", "terminals"}, sdk.WithUser("1000"), sdk.WithTimeout(2*time.Second)); err != nil {
			return err
		}
		_, err := b.run(ctx, []string{"true"}, sdk.WithTerminal(24, 80))
		if err := ended(err); err != nil {
			return err
		}
		return b.works(ctx)
	}},
	{point: "B10", name: "death while somebody waits", play: func(ctx context.Context, b *box) error {
		var waits errgroup.Group
		for what, wait := range map[string]func(context.Context) error{
			"pause": func(ctx context.Context) error { return b.SDK.Pause(ctx, b.id) },
			"exec": func(ctx context.Context) error {
				_, err := b.SDK.Run(ctx, b.id, []string{"sleep", "600"})
				return err
			},
			"stop": func(ctx context.Context) error {
				_, _, err := b.SDK.WaitSandbox(ctx, b.id, 0, sdk.StateStopped)
				return err
			},
		} {
			waits.Go(func() error { return ended(within(ctx, 2*patience, what+", which can no longer come", wait)) })
		}
		pause(ctx, 20*time.Millisecond)
		if err := b.Engine.ContainerKill(ctx, b.primary(), "KILL"); err != nil {
			return err
		}
		return errors.Join(b.fails(ctx, "CONTAINER_NOT_RUNNING"), waits.Wait())
	}},
}

// escapes are commands that leave all behind by which they could be known, and say "held" first.
var escapes = [][]string{
	{"/inside", "escape", "600"},
	{"sh", "-c", `ulimit -S -x unlimited; echo held; exec sleep 600`},
	{"sh", "-c", `(ulimit -S -x unlimited; trap '' TERM; setsid sh -c '(setsid sleep 300 </dev/null >/dev/null 2>&1 &)' &) ; echo held; trap '' TERM HUP; while :; do sleep 300; done`},
}
