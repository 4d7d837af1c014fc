package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/agbox-dev/agbox/sdk"
)

func (a lifeCommands) holdCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hold SANDBOX",
		Short: "Hold a sandbox's lease until this command ends",
		Long: `Hold the lease of a sandbox that was created with --lease. The sandbox ends when nobody has held
it for its grace: however this command ends, kill -9 included, it counts as gone at once. It ends by
itself when the sandbox is detached or deleted.`,
		Args: cobra.ExactArgs(1),
		RunE: a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
			hold, err := c.Hold(ctx, args[0])
			if err != nil {
				return err
			}
			defer hold.Close()
			return a.held(ctx, args[0], hold)
		}),
	}
}

// held returns when there is nothing to hold any more, or the person ends it.
func (a lifeCommands) held(ctx context.Context, id string, hold *sdk.Hold) error {
	a.say("holding %s", id)
	if err := hold.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

func (a lifeCommands) detachCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "detach SANDBOX",
		Short: "Let a sandbox with a lease live on without a holder",
		Args:  cobra.ExactArgs(1),
		RunE: a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
			return c.Detach(ctx, args[0])
		}),
	}
}
