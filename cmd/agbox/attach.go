package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/moby/term"
	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

type attachFlags struct {
	noStdin, fromStart bool
	keys               string
}

func (a execCommands) attachCommand() *cobra.Command {
	var f attachFlags
	cmd := &cobra.Command{
		Use:   "attach EXEC",
		Short: "Join a command's input and output",
		Long: `Show what a command writes from now on, and pass on what is typed here, or comes from a pipe, to a
command that was started with -i or -t. Any number may be attached at once. At the end exit as the command
does, by the codes of exec.

Leaving ends nothing: type the detach keys at a command with a terminal, Ctrl-C otherwise. The end of a
pipe is the end of the command's input, for all, unless it has a terminal.`,
		Example: `  agbox sandbox attach my-exec --from-start
  agbox sandbox attach my-exec --no-stdin`,
		Args: cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.noStdin, "no-stdin", false, "show the output only")
	flags.BoolVar(&f.fromStart, "from-start", false, "show what was written before, too")
	addDetachKeys(cmd, &f.keys)
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
		return a.attach(ctx, c, args[0], f)
	})
	return cmd
}

func addDetachKeys(cmd *cobra.Command, keys *string) {
	cmd.Flags().StringVar(keys, "detach-keys", defaultDetachKeys, "leave when these are typed, such as ctrl-x,x; \"\": never")
}

func detachKeys(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	keys, err := term.ToBytes(text)
	if err != nil {
		return nil, &statusError{exitUsage, fmt.Errorf("--detach-keys: %w", err)}
	}
	return keys, nil
}

func (a execCommands) attach(ctx context.Context, c *sdk.Client, id string, f attachFlags) error {
	keys, err := detachKeys(f.keys)
	if err != nil {
		return err
	}
	var opts []sdk.AttachOption
	if f.fromStart {
		opts = append(opts, sdk.WithOutputFrom(0, 0))
	}
	console := &console{app: a.app, client: c, stdin: !f.noStdin, keys: keys}
	exec, err := console.run(ctx, id, opts...)
	switch {
	case errors.Is(err, sdk.ErrDetached):
		return a.left(id)
	case !exec.Ended():
		return &statusError{exitFault, err}
	}
	if a.json {
		resp, err := c.Raw().GetExec(ctx, &agboxv1.GetExecRequest{ExecId: id})
		if err == nil {
			err = a.printJSON(resp)
		}
		if err != nil {
			return &statusError{exitFault, err}
		}
	}
	if code := exitCode(exec, err); code != 0 {
		return &statusError{code, err}
	}
	return nil
}

// left is how a run ends that was told to leave the command alone.
func (a execCommands) left(id string) error {
	a.say("left exec %s, which goes on: agbox sandbox attach %s", id, id)
	return nil
}
