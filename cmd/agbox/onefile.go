package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strconv"

	"github.com/agbox-dev/agbox/sdk"
	"github.com/spf13/cobra"
)

// asUser adds the flags of a command that works with one file by a user's rights, and returns what they ask for.
func asUser(cmd *cobra.Command) func() []sdk.FileOption {
	user := cmd.Flags().StringP("user", "u", "", "by this user's rights (default: as a command would run)")
	home := cmd.Flags().Bool("home", false, "relative paths begin at the user's home")
	return func() []sdk.FileOption {
		opts := []sdk.FileOption{sdk.AsUser(*user)}
		if *home {
			opts = append(opts, sdk.FromHome())
		}
		return opts
	}
}

func (a fileCommands) catCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "cat SANDBOX:PATH",
		Short:   "Print a file of a sandbox that runs",
		Example: `  agbox cat my-sandbox:/etc/os-release`,
		Args:    onePlace,
	}
	options := asUser(cmd)
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
		at, _ := remote(args[0])
		file, _, err := c.ReadFile(ctx, at.sandbox, at.path, options()...)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(cmd.OutOrStdout(), file)
		return err
	})
	return cmd
}

func (a fileCommands) putCommand() *cobra.Command {
	var mode string
	var parents bool
	cmd := &cobra.Command{
		Use:     "put SANDBOX:PATH",
		Short:   "Write the standard input to a file of a sandbox that runs",
		Long:    `Write the standard input to a file. What is there is replaced once the file is whole.`,
		Example: `  echo hello | agbox put my-sandbox:/workspace/greeting`,
		Args:    onePlace,
	}
	cmd.Flags().StringVar(&mode, "mode", "", "permissions, such as 0600 (default: those of the file that is there, else 0644)")
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "make the directories above it")
	options := asUser(cmd)
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
		at, _ := remote(args[0])
		opts := options()
		if parents {
			opts = append(opts, sdk.WithParents())
		}
		if mode != "" {
			bits, err := strconv.ParseUint(mode, 8, 9)
			if err != nil {
				return errors.New("--mode " + mode + " is no permissions: give 0 to 0777")
			}
			opts = append(opts, sdk.WithMode(fs.FileMode(bits)))
		}
		_, err := c.WriteFile(ctx, at.sandbox, at.path, cmd.InOrStdin(), opts...)
		return err
	})
	return cmd
}

func (a fileCommands) mkdirCommand() *cobra.Command {
	var parents bool
	cmd := &cobra.Command{
		Use:   "mkdir SANDBOX:PATH",
		Short: "Make a directory in a sandbox that runs",
		Args:  onePlace,
	}
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "make those above it, too")
	options := asUser(cmd)
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
		at, _ := remote(args[0])
		opts := options()
		if parents {
			opts = append(opts, sdk.WithParents())
		}
		_, err := c.MakeDirectory(ctx, at.sandbox, at.path, opts...)
		return err
	})
	return cmd
}

func (a fileCommands) mvCommand() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:     "mv SANDBOX:PATH DESTINATION",
		Short:   "Rename a file in a sandbox that runs",
		Example: `  agbox mv my-sandbox:/workspace/draft /workspace/final`,
		Args:    cobra.MatchAll(cobra.ExactArgs(2), func(cmd *cobra.Command, args []string) error { return onePlace(cmd, args[:1]) }),
	}
	cmd.Flags().BoolVarP(&keep, "no-clobber", "n", false, "fail where something is at the destination")
	options := asUser(cmd)
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
		at, _ := remote(args[0])
		opts := options()
		if keep {
			opts = append(opts, sdk.KeepExisting())
		}
		_, err := c.MoveFile(ctx, at.sandbox, at.path, args[1], opts...)
		return err
	})
	return cmd
}
