package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

// atOnce bounds how many sandboxes one command works on at a time.
const atOnce = 8

// transition is a method of the client that takes one sandbox to another state.
type transition func(*sdk.Client, context.Context, string, ...sdk.WaitOption) error

func (a lifeCommands) stopCommand() *cobra.Command {
	var force bool
	var grace time.Duration
	var cmd *cobra.Command
	options := func(wait []sdk.WaitOption) (opts []sdk.StopOption) {
		for _, opt := range wait {
			opts = append(opts, opt)
		}
		if force {
			opts = append(opts, sdk.WithForce())
		}
		if cmd.Flags().Changed("grace") {
			opts = append(opts, sdk.WithGrace(grace))
		}
		return opts
	}
	cmd = a.bulkCommand("stop", "Stop sandboxes; their files stay",
		func(c *sdk.Client, ctx context.Context, id string, wait ...sdk.WaitOption) error {
			return c.Stop(ctx, id, options(wait)...)
		},
		func(c *sdk.Client, ctx context.Context, sel sdk.Selection, wait ...sdk.WaitOption) ([]string, error) {
			return c.StopSandboxes(ctx, sel, options(wait)...)
		},
		func(ids []string) proto.Message { return &agboxv1.StopSandboxesResponse{SandboxIds: ids} })
	cmd.Flags().BoolVar(&force, "force", false, "kill at once, also when a stop hangs")
	cmd.Flags().DurationVar(&grace, "grace", 0, "time between TERM and KILL (default: agboxd's)")
	cmd.MarkFlagsMutuallyExclusive("force", "grace")
	return cmd
}

func (a lifeCommands) pauseCommand() *cobra.Command {
	return a.transitionCommand("pause", "Freeze sandboxes; their memory stays", (*sdk.Client).Pause)
}

func (a lifeCommands) unpauseCommand() *cobra.Command {
	return a.transitionCommand("unpause", "Let frozen sandboxes go on", (*sdk.Client).Unpause)
}

func (a lifeCommands) drainCommand() *cobra.Command {
	var deadline time.Duration
	cmd := a.transitionCommand("drain", "Stop sandboxes once their commands have ended",
		func(c *sdk.Client, ctx context.Context, id string, opts ...sdk.WaitOption) error {
			return c.Drain(ctx, id, deadline, opts...)
		})
	cmd.Flags().DurationVar(&deadline, "deadline", 0, "cancel what still runs after so long, 0: never")
	return cmd
}

func (a lifeCommands) extendCommand() *cobra.Command {
	var maxDuration, idle time.Duration
	cmd := &cobra.Command{
		Use:   "extend SANDBOX",
		Short: "Give a sandbox more time, from now on",
		Args:  cobra.ExactArgs(1),
	}
	cmd.Flags().DurationVar(&maxDuration, "max-duration", 0, "how long it may exist, 0: for ever")
	cmd.Flags().DurationVar(&idle, "idle-ttl", 0, "how long it may be idle, 0: for ever")
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
		var extension sdk.Extension
		if cmd.Flags().Changed("max-duration") {
			extension.MaxDuration = &maxDuration
		}
		if cmd.Flags().Changed("idle-ttl") {
			extension.IdleTTL = &idle
		}
		box, err := c.Extend(ctx, args[0], extension)
		if err != nil {
			return err
		}
		if a.json {
			resp, err := c.Raw().GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: box.ID})
			if err != nil {
				return err
			}
			return a.printJSON(resp)
		}
		fmt.Fprintln(a.out, box.ID)
		return nil
	})
	return cmd
}

func (a lifeCommands) resumeCommand() *cobra.Command {
	return a.bulkCommand("resume", "Start stopped sandboxes again", (*sdk.Client).Resume, (*sdk.Client).ResumeSandboxes,
		func(ids []string) proto.Message { return &agboxv1.ResumeSandboxesResponse{SandboxIds: ids} })
}

func (a lifeCommands) transitionCommand(verb, short string, to transition) *cobra.Command {
	var noWait bool
	cmd := &cobra.Command{
		Use:   verb + " SANDBOX...",
		Short: short,
		Args:  cobra.MinimumNArgs(1),
		RunE: a.with(func(ctx context.Context, c *sdk.Client, ids []string) error {
			return a.each(ctx, c, ids, to, sdk.WithWait(!noWait))
		}),
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when it is accepted")
	return cmd
}

func (a lifeCommands) deleteCommand() *cobra.Command {
	cmd := a.bulkCommand("delete", "Delete sandboxes and all that belongs to them", (*sdk.Client).Delete, (*sdk.Client).DeleteSandboxes,
		func(ids []string) proto.Message {
			return &agboxv1.DeleteSandboxesResponse{DeletedSandboxIds: ids, DeletedCount: uint32(len(ids))}
		})
	cmd.Aliases = []string{"rm"}
	return cmd
}

// bulkCommand is for sandboxes by name, or for all with a label; answer is what the daemon has said of those.
func (a lifeCommands) bulkCommand(verb, short string, to transition, all bulk, answer func(ids []string) proto.Message) *cobra.Command {
	var noWait bool
	var chosen selector
	cmd := &cobra.Command{
		Use:   verb + " SANDBOX... | --label KEY=VALUE",
		Short: short,
		Example: fmt.Sprintf(`  agbox sandbox %[1]s my-sandbox
  agbox sandbox %[1]s --label job=42`, verb),
		Args: chosen.either,
		RunE: a.with(func(ctx context.Context, c *sdk.Client, ids []string) error {
			wait := sdk.WithWait(!noWait)
			if len(ids) > 0 {
				return a.each(ctx, c, ids, to, wait)
			}
			ids, err := all(c, ctx, chosen.selection(), wait)
			if a.json && (err == nil || len(ids) > 0) {
				return errors.Join(err, a.printJSON(answer(ids)))
			}
			for _, id := range ids {
				fmt.Fprintln(a.out, id)
			}
			return err
		}),
	}
	chosen.flags(cmd, "all")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when it is accepted")
	return cmd
}

// each does the same to several sandboxes and prints, in the order given, the ids where it worked.
func (a lifeCommands) each(ctx context.Context, c *sdk.Client, ids []string, to transition, opts ...sdk.WaitOption) error {
	errs := make([]error, len(ids))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, id := range ids {
		group.Go(func() error {
			errs[i] = to(c, ctx, id, opts...)
			return nil
		})
	}
	_ = group.Wait() // errs has them all
	for i, id := range ids {
		if errs[i] != nil {
			continue
		}
		if !a.json {
			fmt.Fprintln(a.out, id)
		} else if err := a.printJSON(&agboxv1.AcceptedResponse{Accepted: true}); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}
