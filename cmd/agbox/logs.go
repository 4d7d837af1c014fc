package main

import (
	"context"
	"errors"
	"io"

	"github.com/agbox-dev/agbox/sdk"
	"github.com/spf13/cobra"
)

type logFlags struct {
	story, stdout, stderr, follow bool
	service                       string
	tail                          size
	offset                        uint64
	hasTail, hasService           bool
}

func (a *app) logsCommand() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:   "logs EXEC | SANDBOX",
		Short: "Show what a command has written, or the story of a sandbox",
		Long: `Write the output of a command, as its bytes are, up to now; with --follow, stay until the
command has ended and all of it is shown. Both are there until the sandbox's history is removed, also
after its deletion. The exit code is 0 however the command ended.

With the id of a sandbox: its story, which tells what was done for it, how long that took and what went
wrong, with --follow until it is deleted; or what its own command or a service has written, until that
ends. Where an exec has the same id, --story and --stdout mean the sandbox.`,
		Example: `  agbox sandbox logs my-exec --follow
  agbox sandbox logs my-exec --stderr --tail 4k
  agbox sandbox logs my-sandbox
  agbox sandbox logs my-sandbox --service db --follow`,
		Args: cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.story, "story", false, "the sandbox's story")
	flags.BoolVar(&f.stdout, "stdout", false, "what the sandbox's own command wrote to stdout")
	flags.BoolVar(&f.stderr, "stderr", false, "what the command, or the sandbox's own, wrote to stderr")
	flags.StringVar(&f.service, "service", "", "what this service of the sandbox wrote, each stream to ours")
	flags.BoolVarP(&f.follow, "follow", "f", false, "stay for what is still to come")
	flags.Var(&f.tail, "tail", "begin so many bytes before the present end")
	flags.Uint64Var(&f.offset, "offset", 0, "begin at this byte of a command's output")
	cmd.MarkFlagsMutuallyExclusive("tail", "offset")
	cmd.MarkFlagsMutuallyExclusive("story", "stdout", "stderr", "service")
	for _, flag := range []string{"story", "stdout", "service"} {
		cmd.MarkFlagsMutuallyExclusive(flag, "offset")
	}
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
		f.hasTail, f.hasService = flags.Changed("tail"), flags.Changed("service")
		if f.story || f.stdout || f.hasService {
			return a.sandboxLog(ctx, c, args[0], f)
		}
		err := a.execLog(ctx, c, args[0], f)
		if !errors.Is(err, sdk.ErrExecNotFound) || flags.Changed("offset") {
			return err
		}
		if other := a.sandboxLog(ctx, c, args[0], f); !errors.Is(other, sdk.ErrSandboxNotFound) {
			return other
		}
		return err
	})
	return cmd
}

func (a *app) execLog(ctx context.Context, c *sdk.Client, id string, f logFlags) error {
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
	log := c.ReadLog(ctx, id, opts...)
	defer log.Close()
	_, err := io.Copy(a.out, log)
	return err
}

func (a *app) sandboxLog(ctx context.Context, c *sdk.Client, id string, f logFlags) error {
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
	return c.CopySandboxLog(ctx, id, log, a.out, a.err)
}
