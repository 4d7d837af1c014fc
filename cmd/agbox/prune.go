package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

func (a daemonCommands) pruneCommand() *cobra.Command {
	var chosen selector
	var olderThan time.Duration
	var snapshots, dryRun, noWait bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Delete sandboxes that are stopped or failed, and snapshots that nobody uses",
		Example: `  agbox prune --older-than 24h --dry-run
  agbox prune --state failed -l job=42`,
		Args: func(cmd *cobra.Command, args []string) error {
			return errors.Join(cobra.NoArgs(cmd, args), chosen.check())
		},
		RunE: a.with(func(ctx context.Context, c *sdk.Client, _ []string) error {
			sel := chosen.selection()
			sandboxes, images, err := c.Prune(ctx, sdk.Pruning{Labels: sel.Labels, States: sel.States, OlderThan: olderThan,
				Snapshots: snapshots, DryRun: dryRun}, sdk.WithWait(!noWait))
			if a.json && (err == nil || len(sandboxes)+len(images) > 0) {
				return errors.Join(err, a.printJSON(&agboxv1.PruneResponse{SandboxIds: sandboxes, SnapshotIds: images}))
			}
			for _, id := range append(sandboxes, images...) {
				fmt.Fprintln(a.out, id)
			}
			return err
		}),
	}
	chosen.flags(cmd, "only those")
	cmd.Flags().DurationVar(&olderThan, "older-than", 0, "only those that have been so for so long, such as 24h")
	cmd.Flags().BoolVar(&snapshots, "snapshots", false, "also snapshots that no sandbox was made from")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would go, and change nothing")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when it is accepted")
	return cmd
}
