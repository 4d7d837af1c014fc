package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

func (a execCommands) execsCommand() *cobra.Command {
	var names []string
	var limit uint32
	cmd := &cobra.Command{
		Use:   "execs [SANDBOX]",
		Short: "List execs, newest first, ended ones too",
		Example: `  agbox sandbox execs my-sandbox
  agbox sandbox execs --state running`,
		Args: func(cmd *cobra.Command, args []string) error {
			return errors.Join(cobra.MaximumNArgs(1)(cmd, args), checkStates(names, agboxv1.ExecState_value, "EXEC_STATE_"))
		},
	}
	cmd.Flags().StringArrayVar(&names, "state", nil, "only those in this state, such as running; may be repeated")
	cmd.Flags().Uint32Var(&limit, "limit", 1000, "at most so many")
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
		req := &agboxv1.ListExecsRequest{SandboxId: strings.Join(args, ""), Limit: limit}
		for _, name := range names {
			req.States = append(req.States, agboxv1.ExecState(agboxv1.ExecState_value["EXEC_STATE_"+strings.ToUpper(name)]))
		}
		return a.execs(ctx, c, req)
	})
	return cmd
}

// remarks are what an exit code does not tell.
func remarks(used *agboxv1.ExecResources) []string {
	var text []string
	if used.GetTimedOut() {
		text = append(text, "timed out")
	}
	if used.GetOom() {
		text = append(text, "out of memory")
	}
	return text
}

func (a execCommands) execs(ctx context.Context, c *sdk.Client, req *agboxv1.ListExecsRequest) error {
	resp, err := c.Raw().ListExecs(ctx, req)
	if err != nil {
		return err
	}
	return printAll(a.app, resp.GetExecs(), []string{"ID", "SANDBOX", "STATE", "EXIT", "ENDED", "COMMAND"}, func(exec *agboxv1.ExecStatus) []string {
		code, ended := "", ""
		if exec.GetEndedAt() != nil {
			code, ended = fmt.Sprint(exec.GetExitCode()), timeText(exec.GetEndedAt().AsTime())
		}
		return []string{exec.GetExecId(), exec.GetSandboxId(), strings.TrimPrefix(exec.GetState().String(), "EXEC_STATE_"),
			strings.Join(append([]string{code}, remarks(exec.GetResources())...), ", "), ended, strings.Join(exec.GetCommand(), " ")}
	})
}
