package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/spf13/cobra"
)

func (a *app) watchCommand() *cobra.Command {
	var labels pairs
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
			return a.watch(ctx, c, &agboxv1.WatchSandboxesRequest{LabelSelector: labels.values, IncludeCurrentSnapshot: snapshot})
		}),
	}
	cmd.Flags().Var(&labels, "label", "only sandboxes with the label; with several, with all of them")
	cmd.Flags().BoolVar(&snapshot, "snapshot", false, "show the current state of each first")
	return cmd
}

func (a *app) watch(ctx context.Context, c *sdk.Client, req *agboxv1.WatchSandboxesRequest) error {
	stream, err := c.Raw().WatchSandboxes(ctx, req)
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("agboxd ended the stream: watch again when it is back")
		} else if err != nil {
			return err
		}
		if !a.json {
			if _, err := fmt.Fprintf(a.out, "%s  ", event.GetSandboxId()); err != nil {
				return err
			}
		}
		if err := a.printEvent(event); err != nil {
			return err
		}
	}
}
