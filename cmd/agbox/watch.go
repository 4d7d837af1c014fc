package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agbox-dev/agbox/cmd/agbox/value"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

func (a *app) watchCommand() *cobra.Command {
	var labels value.Pairs
	var snapshot bool
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show what happens to all sandboxes",
		Long: `Show the events of all sandboxes from now on, those that are created later included, until
interrupted or until agboxd goes away.`,
		Example: `  agbox sandbox watch --label job=42
  agbox --json sandbox watch --snapshot | jq -r '.sandbox_id + " " + .event_type'`,
		Args: cobra.NoArgs,
		RunE: a.with(func(ctx context.Context, c *sdk.Client, _ []string) error {
			stream, err := c.Raw().WatchSandboxes(ctx, &agboxv1.WatchSandboxesRequest{LabelSelector: labels.Values, IncludeCurrentSnapshot: snapshot})
			return printStream(a, stream, err, errStreamEnded, func(event *agboxv1.SandboxEvent) error {
				if _, err := fmt.Fprintf(a.out, "%s  ", event.GetSandboxId()); err != nil {
					return err
				}
				return a.printEvent(event)
			})
		}),
	}
	cmd.Flags().Var(&labels, "label", "only sandboxes with the label; with several, with all of them")
	cmd.Flags().BoolVar(&snapshot, "snapshot", false, "show the current state of each first")
	return cmd
}
