package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/agbox-dev/agbox/sdk"
)

func (a fileCommands) cpCommand() *cobra.Command {
	var owner string
	cmd := &cobra.Command{
		Use:   "cp SOURCE TARGET",
		Short: "Copy files into a sandbox, or out of it",
		Long: `Copy a file or directory; one side is SANDBOX:PATH, the other a local path or "-".

A file goes to TARGET, or into it where that is a directory. Of a directory, the content goes into the
directory TARGET, which is made when it is missing. A relative PATH is from the sandbox's working
directory. With "-" a tar stream is read from standard input and unpacked in PATH, or written to
standard output. A local path with a colon is written ./a:b. A terminal shows how much has gone;
Ctrl-C ends it, and files that were not copied whole are not there.`,
		Example: `  agbox cp ./src my-sandbox:/workspace/src
  agbox cp my-sandbox:result.json .
  tar -c . | agbox cp - my-sandbox:.
  agbox cp my-sandbox:/etc - | tar -t`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(2)(cmd, args); err != nil {
				return err
			}
			if _, in := remote(args[1]); in {
				if _, out := remote(args[0]); out {
					return errors.New("both sides are in a sandbox: copy to a local directory first")
				}
				return nil
			} else if _, out := remote(args[0]); !out {
				return errors.New("one side must be SANDBOX:PATH")
			}
			if cmd.Flags().Changed("owner") {
				return errors.New("--owner is for files that go into a sandbox")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&owner, "owner", "", "who owns them in the sandbox: a name or number, optionally :group (default: as whom a command would run)")
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
		var bytes atomic.Uint64
		defer a.meter(func() string { return "copied " + byteText(bytes.Load()) })()
		passed := sdk.WithPassed(func(n int) { bytes.Add(uint64(n)) })
		if to, in := remote(args[1]); in {
			return a.copyIn(ctx, c, args[0], to, sdk.WithOwner(owner), passed)
		}
		from, _ := remote(args[0])
		return a.copyOut(ctx, c, from, args[1], passed)
	})
	return cmd
}

// place is SANDBOX:PATH.
type place struct{ sandbox, path string }

// remote parses SANDBOX:PATH. An id has no character that a path would need to be told from it.
func remote(arg string) (place, bool) {
	id, path, found := strings.Cut(arg, ":")
	return place{id, path}, found && !strings.ContainsAny(id, "/.")
}

func (a fileCommands) copyIn(ctx context.Context, c *sdk.Client, local string, to place, opts ...sdk.TransferOption) error {
	if local == "-" {
		_, err := c.UploadTar(ctx, to.sandbox, to.path, a.in, opts...)
		return err
	}
	_, err := c.Upload(ctx, to.sandbox, local, to.path, opts...)
	return err
}

func (a fileCommands) copyOut(ctx context.Context, c *sdk.Client, from place, local string, opts ...sdk.TransferOption) error {
	if local != "-" {
		return c.Download(ctx, from.sandbox, from.path, local, opts...)
	}
	stream, err := c.DownloadTar(ctx, from.sandbox, from.path, opts...)
	if err != nil {
		return err
	}
	defer stream.Close()
	_, err = io.Copy(a.out, stream)
	return err
}

// onePlace accepts a single SANDBOX:PATH.
func onePlace(cmd *cobra.Command, args []string) error {
	if err := cobra.ExactArgs(1)(cmd, args); err != nil {
		return err
	}
	if _, ok := remote(args[0]); !ok {
		return fmt.Errorf("%q is not SANDBOX:PATH", args[0])
	}
	return nil
}
