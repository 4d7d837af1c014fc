package main

import (
	"context"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

func (a execCommands) signalCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "signal EXEC SIGNAL",
		Short:   "Send a signal to a running command",
		Example: "  agbox sandbox signal my-exec HUP",
		Args:    cobra.ExactArgs(2),
		RunE: a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
			if err := c.SignalExec(ctx, args[0], args[1]); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(&agboxv1.AcceptedResponse{Accepted: true})
			}
			return nil
		}),
	}
}
