package main

import (
	"context"
	"io"

	"github.com/agbox-dev/agbox/sdk"
	"github.com/spf13/cobra"
)

type logFlags struct {
	stderr, follow bool
	tail           size
	offset         uint64
}

func (a *app) logsCommand() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:   "logs EXEC",
		Short: "Show what a command has written",
		Long: `Write the output of a command, as its bytes are, up to now; with --follow, stay until the
command has ended and all of it is shown. Both are there until the sandbox's history is removed, also
after its deletion. The exit code is 0 however the command ended.`,
		Example: `  agbox sandbox logs my-exec --follow
  agbox sandbox logs my-exec --stderr --tail 4k`,
		Args: cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.stderr, "stderr", false, "what it wrote to stderr (default: to stdout)")
	flags.BoolVarP(&f.follow, "follow", "f", false, "stay for what is still to come")
	flags.Var(&f.tail, "tail", "begin so many bytes before the present end")
	flags.Uint64Var(&f.offset, "offset", 0, "begin at this byte")
	cmd.MarkFlagsMutuallyExclusive("tail", "offset")
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
		opts := []sdk.LogOption{sdk.WithOffset(f.offset)}
		if flags.Changed("tail") {
			opts = append(opts, sdk.WithTail(uint64(f.tail)))
		}
		if f.stderr {
			opts = append(opts, sdk.WithStderr())
		}
		if f.follow {
			opts = append(opts, sdk.WithFollow())
		}
		return a.logs(c.ReadLog(ctx, args[0], opts...))
	})
	return cmd
}

func (a *app) logs(log io.ReadCloser) error {
	defer log.Close()
	_, err := io.Copy(a.out, log)
	return err
}
