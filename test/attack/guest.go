package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

// guestAttacks are on PID 1 of the attacker's own sandbox.
var guestAttacks = []*attack{
	{point: "B2", name: "a lease on a script that is run", prepare: held, play: func(ctx context.Context, b *box) error {
		if _, err := b.hold(ctx, []string{"/inside", "lease", "/shared/held"}); err != nil {
			return err
		}
		stuck, err := b.SDK.CreateExec(ctx, b.id, []string{"/shared/held"}, sdk.WithTimeout(time.Second))
		if err != nil {
			return err
		}
		for range 3 {
			if err := b.works(ctx); err != nil {
				return err
			}
		}
		return within(ctx, patience, "the end of what cannot be opened", func(ctx context.Context) error {
			_, err := b.SDK.WaitExec(ctx, stuck)
			return errors.Join(ended(err), ctx.Err())
		})
	}},
	{point: "B2", name: "a lease on a file that is taken out", prepare: held, play: func(ctx context.Context, b *box) error {
		if _, err := b.hold(ctx, []string{"/inside", "lease", "/shared/held"}); err != nil {
			return err
		}
		taken := filepath.Join(b.config.dir, b.id)
		defer os.RemoveAll(taken)
		if err := ended(within(ctx, patience, "download", func(ctx context.Context) error {
			return b.SDK.Download(ctx, b.id, "/shared/held", taken)
		})); err != nil {
			return err
		}
		return b.works(ctx)
	}},
	{point: "B2", name: "pipes in place of /etc/passwd", play: func(ctx context.Context, b *box) error {
		swapping, err := b.hold(ctx, []string{"sh", "-c", `cd /etc; cp passwd keep; echo held
while :; do rm -f passwd; mkfifo passwd; cp keep new; mv -f new passwd; ln -s /dev/tty1 x 2>/dev/null; done`}, sdk.WithUser("0"))
		if err != nil {
			return err
		}
		for range 20 {
			_, err := b.run(ctx, []string{"true"}, sdk.WithUser("agbox"))
			if err := ended(err); err != nil {
				return err
			}
			if err := b.works(ctx); err != nil {
				return err
			}
		}
		return b.cancel(ctx, swapping)
	}},
	{point: "B5", name: "mv /.agbox, by root", play: func(ctx context.Context, b *box) error {
		_, err := b.run(ctx, []string{"sh", "-c", `mv /.agbox /moved; mkdir -p /.agbox /new
printf '#!/bin/sh\ntouch /ran\n' >/new/init; chmod 755 /new/init; mv /new/init /.agbox/init; mount --bind /new /.agbox; rm -rf /.agbox; umount /.agbox`}, sdk.WithUser("0"))
		if err := ended(err); err != nil {
			return err
		}
		if _, err := b.SDK.StatFile(ctx, b.id, "/etc/passwd"); err != nil {
			return err
		}
		if err := b.works(ctx); err != nil {
			return err
		}
		return b.script(ctx, "! test -e /ran")
	}},
	{point: "B5", name: "limits of PID 1, by root", play: func(ctx context.Context, b *box) error {
		result, err := b.run(ctx, []string{"/inside", "nofile", "1", "3"}, sdk.WithUser("0"))
		if err == nil && result.ExitCode == 0 {
			err = errors.New("PID 1 took a limit of 3 descriptors")
		}
		if err != nil {
			return err
		}
		if _, err := b.run(ctx, []string{"sh", "-c", "kill -9 1; kill -STOP 1; kill -TERM -1; kill -9 -1"}, sdk.WithUser("1000")); ended(err) != nil {
			return err
		}
		return b.works(ctx)
	}},
	{point: "B12", name: "a flood of connections to PID 1's socket", play: func(ctx context.Context, b *box) error {
		flooding, err := b.SDK.CreateExec(ctx, b.id, []string{"/inside", "connect", "/.agbox/run/s", "3000"}, sdk.WithUser("0"), sdk.WithTimeout(3*time.Second))
		if err != nil {
			return err
		}
		for range 5 {
			if err := b.works(ctx); err != nil {
				return err
			}
		}
		return ended(within(ctx, patience, "the end of the flood", func(ctx context.Context) error {
			_, err := b.SDK.WaitExec(ctx, flooding)
			return err
		}))
	}},
	{point: "item 3", name: "locks on all that PID 1 has open", play: func(ctx context.Context, b *box) error {
		if _, err := b.hold(ctx, []string{"/inside", "flock", "/.agbox", "/workspace", "/tmp", "/var/log"}, sdk.WithUser("0")); err != nil {
			return err
		}
		for what, do := range map[string]func(context.Context) error{
			"pause": func(ctx context.Context) error {
				return errors.Join(b.SDK.Pause(ctx, b.id), b.SDK.Unpause(ctx, b.id))
			},
			"exec": b.works,
		} {
			if err := within(ctx, patience, what, do); err != nil {
				return err
			}
		}
		if err := within(ctx, 2*patience, "stop", func(ctx context.Context) error { return b.SDK.Stop(ctx, b.id) }); err != nil {
			return err
		}
		if err := within(ctx, 2*patience, "resume", func(ctx context.Context) error { return b.SDK.Resume(ctx, b.id) }); err != nil {
			return err
		}
		return b.works(ctx)
	}},
	{point: "item 9", name: "names that are no text, arguments of 1 MB", play: func(ctx context.Context, b *box) error {
		if err := b.script(ctx, `printf 'root:x:0:0::/:\nb\377d\033[2J:x:1234:1234::/:\n' >/etc/passwd; mkdir -m 700 /closed`); err != nil {
			return err
		}
		large := strings.Repeat("x", 1<<20)
		for what, exec := range map[string]struct {
			command []string
			opts    []sdk.ExecOption
		}{
			"a user with an invalid name": {[]string{"true"}, []sdk.ExecOption{sdk.WithUser("1234"), sdk.WithCwd("/closed")}},
			"a large argument":            {[]string{"echo", large}, nil},
			"a large name":                {[]string{"/" + large}, nil},
			"a large directory":           {[]string{"true"}, []sdk.ExecOption{sdk.WithCwd("/" + large)}},
		} {
			err := within(ctx, patience, what, func(ctx context.Context) error {
				_, err := b.SDK.Run(ctx, b.id, exec.command, append(exec.opts, sdk.WithTimeout(5*time.Second))...)
				return err
			})
			if err == nil {
				return fmt.Errorf("%s is no error", what)
			}
			if len(err.Error()) > 16<<10 {
				return fmt.Errorf("%s gives an error of %d bytes", what, len(err.Error()))
			}
			if err := ended(err); err != nil {
				return err
			}
		}
		events := 0
		if err := within(ctx, patience, "read the events", func(ctx context.Context) error {
			found, err := b.SDK.GetSandbox(ctx, b.id)
			if err != nil {
				return err
			}
			for event, err := range b.SDK.Subscribe(ctx, b.id) {
				if err != nil {
					return err
				}
				if events++; event.Sequence >= found.LastEventSequence {
					break
				}
			}
			return nil
		}); err != nil {
			return err
		}
		return b.works(ctx)
	}},
}

// held is a script in the shared directory that any user may write to, as a lease needs.
func held(b *box, _ *sdk.Spec) error {
	path := filepath.Join(b.shared, "held")
	return errors.Join(os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755), os.Chown(path, 1000, 1000))
}
