package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/agbox-dev/agbox/cmd/agbox/value"
	"github.com/agbox-dev/agbox/sdk"
)

type logFlags struct {
	operations, stdout, stderr, both, follow bool
	service                                  string
	tail                                     value.Size
	offset                                   uint64
	hasTail, hasService                      bool
}

func (a execCommands) logsCommand() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:   "logs EXEC | SANDBOX",
		Short: "Show what a command has written, or the operation log of a sandbox",
		Long: `Write the output of a command, as its bytes are, up to now; with --follow, stay until the
command has ended and all of it is shown. Both are there until the sandbox's history is removed, also
after its deletion. The exit code is 0 however the command ended. With --both, what it wrote to stdout
goes to ours and what it wrote to stderr to ours, in the order in which it did.

With the id of a sandbox: its operation log, which tells what was done for it, how long that took and what went
wrong, with --follow until it is deleted; or what its own command or a service has written, until that
ends. Where an exec has the same id, --operations and --stdout mean the sandbox.`,
		Example: `  agbox sandbox logs my-exec --follow
  agbox sandbox logs my-exec --stderr --tail 4k
  agbox sandbox logs my-exec --both 2>&1 | less
  agbox sandbox logs my-sandbox
  agbox sandbox logs my-sandbox --service db --follow`,
		Args: cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.operations, "operations", false, "the sandbox's operation log")
	flags.BoolVar(&f.stdout, "stdout", false, "what the sandbox's own command wrote to stdout")
	flags.BoolVar(&f.stderr, "stderr", false, "what the command, or the sandbox's own, wrote to stderr")
	flags.BoolVar(&f.both, "both", false, "what the command wrote to stdout and stderr, each to ours, in its order")
	flags.StringVar(&f.service, "service", "", "what this service of the sandbox wrote, each stream to ours")
	flags.BoolVarP(&f.follow, "follow", "f", false, "stay for what is still to come")
	flags.Var(&f.tail, "tail", "begin so many bytes before the present end")
	flags.Uint64Var(&f.offset, "offset", 0, "begin at this byte of a command's output")
	cmd.MarkFlagsMutuallyExclusive("tail", "offset")
	cmd.MarkFlagsMutuallyExclusive("operations", "stdout", "stderr", "both", "service")
	for _, flag := range []string{"operations", "stdout", "both", "service"} {
		cmd.MarkFlagsMutuallyExclusive(flag, "offset")
	}
	cmd.MarkFlagsMutuallyExclusive("both", "tail")
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
		f.hasTail, f.hasService = flags.Changed("tail"), flags.Changed("service")
		if f.operations || f.stdout || f.hasService {
			return a.sandboxLog(ctx, c, args[0], f)
		}
		err := a.execLog(ctx, c, args[0], f)
		if !errors.Is(err, sdk.ErrExecNotFound) || flags.Changed("offset") || f.both {
			return err
		}
		other := a.sandboxLog(ctx, c, args[0], f)
		if errors.Is(other, sdk.ErrSandboxNotFound) {
			return errors.Join(err, other)
		}
		return other
	})
	return cmd
}

func (a execCommands) execLog(ctx context.Context, c *sdk.Client, id string, f logFlags) error {
	opts := []sdk.LogOption{sdk.WithOffset(f.offset)}
	if f.hasTail {
		opts = append(opts, sdk.WithTail(uint64(f.tail)))
	}
	if f.stderr {
		opts = append(opts, sdk.WithStderr())
	}
	if f.follow {
		opts = append(opts, sdk.WithFollow())
	}
	if f.both {
		return a.bothLogs(ctx, c, id, append(opts, sdk.WithBoth()))
	}
	log := c.ReadLog(ctx, id, opts...)
	defer log.Close()
	_, err := io.Copy(a.out, log)
	return err
}

func (a execCommands) bothLogs(ctx context.Context, c *sdk.Client, id string, opts []sdk.LogOption) error {
	for chunk, err := range c.LogChunks(ctx, id, opts...) {
		if err != nil {
			return err
		}
		to := a.out
		if chunk.Stderr {
			to = a.err
		}
		if _, err := to.Write(chunk.Data); err != nil {
			return err
		}
	}
	return nil
}

func (a execCommands) sandboxLog(ctx context.Context, c *sdk.Client, id string, f logFlags) error {
	log := sdk.SandboxLog{Follow: f.follow, Service: f.service}
	switch {
	case f.hasService:
		log.Source = sdk.SourceService
	case f.stdout:
		log.Source = sdk.SourceStdout
	case f.stderr:
		log.Source = sdk.SourceStderr
	}
	if f.hasTail {
		bytes := uint64(f.tail)
		log.TailBytes = &bytes
	}
	if log.Source == "" { // the operation log, in which there are words of others
		return c.CopySandboxLog(ctx, id, log, &lines{to: a.out}, a.err)
	}
	return c.CopySandboxLog(ctx, id, log, a.out, a.err)
}
