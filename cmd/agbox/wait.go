package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

// exitNotReached is wait's code when the sandbox did not get there.
const exitNotReached = 3

func (a lifeCommands) waitCommand() *cobra.Command {
	var names []string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait SANDBOX",
		Short: "Wait until a sandbox is in a state",
		Long: `Wait until the sandbox is in one of the states, or without --state until nothing is in
progress, and print the state that it is in then. The exit code is 0 when it got there, and 3 when
the time was over before, or when it gets there no more.`,
		Example: `  agbox sandbox wait my-sandbox --state ready --timeout 1m
  agbox sandbox wait my-sandbox --state stopped --state failed`,
		Args: func(cmd *cobra.Command, args []string) error {
			return errors.Join(cobra.ExactArgs(1)(cmd, args), checkStates(names, agboxv1.SandboxState_value, "SANDBOX_STATE_"))
		},
	}
	cmd.Flags().StringArrayVar(&names, "state", nil, "state to wait for, such as ready; may be repeated")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "wait no longer than this, such as 30s (default: no limit)")
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
		var states []sdk.State
		for _, name := range names {
			states = append(states, sdk.State(strings.ToUpper(name)))
		}
		return a.wait(ctx, c, args[0], timeout, states)
	})
	return cmd
}

func (a lifeCommands) wait(ctx context.Context, c *sdk.Client, id string, timeout time.Duration, states []sdk.State) error {
	box, reached, err := c.WaitSandbox(ctx, id, timeout, states...)
	if err != nil {
		return err
	}
	if a.json {
		resp, err := c.Raw().GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: id})
		if err != nil {
			return err
		}
		if err := a.printJSON(&agboxv1.WaitSandboxResponse{Sandbox: resp.GetSandbox(), Reached: reached}); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(a.out, box.State)
	}
	if !reached {
		return &statusError{code: exitNotReached}
	}
	return nil
}

// checkStates refuses names that the API does not have, in any case of letters.
func checkStates(names []string, known map[string]int32, prefix string) error {
	for _, name := range names {
		if known[prefix+strings.ToUpper(name)] == 0 {
			var all []string
			for state, value := range known {
				if value != 0 {
					all = append(all, strings.ToLower(strings.TrimPrefix(state, prefix)))
				}
			}
			return fmt.Errorf("%q is no state: use one of %s", name, strings.Join(slices.Sorted(slices.Values(all)), ", "))
		}
	}
	return nil
}
