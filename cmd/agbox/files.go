package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

func (a fileCommands) lsCommand() *cobra.Command {
	var recursive bool
	var limit uint32
	cmd := &cobra.Command{
		Use:     "ls SANDBOX:DIRECTORY",
		Short:   "List files in a sandbox",
		Example: `  agbox ls my-sandbox:/workspace -r`,
		Args:    onePlace,
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "all that is below, too")
	cmd.Flags().Uint32Var(&limit, "limit", 0, "at most so many (default: 10000)")
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
		at, _ := remote(args[0])
		resp, err := c.Raw().ListFiles(ctx, &agboxv1.ListFilesRequest{SandboxId: at.sandbox, Path: at.path, Recursive: recursive, Limit: limit})
		if err != nil {
			return err
		}
		err = a.printFiles(resp.GetFiles())
		if err == nil && resp.GetTruncated() {
			a.say("there are more: see --limit")
		}
		return err
	})
	return cmd
}

func (a fileCommands) statCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stat SANDBOX:PATH",
		Short: "Show one file of a sandbox",
		Args:  onePlace,
		RunE: a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
			at, _ := remote(args[0])
			resp, err := c.Raw().StatFile(ctx, &agboxv1.StatFileRequest{SandboxId: at.sandbox, Path: at.path})
			if err != nil {
				return err
			}
			return a.printFiles([]*agboxv1.FileInfo{resp.GetFile()})
		}),
	}
}

func (a fileCommands) printFiles(files []*agboxv1.FileInfo) error {
	return printAll(a.app, files, []string{"MODE", "OWNER", "SIZE", "MODIFIED", "TYPE", "PATH"}, func(f *agboxv1.FileInfo) []string {
		name := fileText(f.GetPath())
		if f.GetType() == sdk.FileSymlink {
			name += " -> " + fileText(f.GetLinkTarget())
		}
		return []string{fmt.Sprintf("%04o", f.GetMode()), fmt.Sprintf("%d:%d", f.GetUid(), f.GetGid()),
			fmt.Sprint(f.GetSize()), timeText(f.GetModifiedAt().AsTime()), f.GetType(), name}
	})
}

// fileText quotes a name that would not stay on its line, or would speak to the terminal.
func fileText(name string) string {
	if quoted := fmt.Sprintf("%q", name); quoted[1:len(quoted)-1] != name {
		return quoted
	}
	return name
}

func (a fileCommands) rmCommand() *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "rm SANDBOX:PATH",
		Short: "Remove a file from a sandbox that runs",
		Args:  onePlace,
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "also a directory that is not empty")
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
		at, _ := remote(args[0])
		return c.RemoveFile(ctx, at.sandbox, at.path, recursive)
	})
	return cmd
}

func (a fileCommands) watchFilesCommand() *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "watch-files SANDBOX:PATH",
		Short: "Show what happens to files in a sandbox that runs",
		Long: `Show what happens to a file, or in a directory, until interrupted, until the directory is gone, or
until the sandbox stops. The first line says that the watch has begun.`,
		Example: `  agbox --json watch-files my-sandbox:/workspace -r | jq -r .path`,
		Args:    onePlace,
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "all that is below, too")
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
		at, _ := remote(args[0])
		events, err := c.Raw().WatchFiles(ctx, &agboxv1.WatchFilesRequest{SandboxId: at.sandbox, Path: at.path, Recursive: recursive})
		return printStream(a.app, events, err, nil, func(event *agboxv1.FileEvent) error { return a.printLine("%s", fileEventText(event)) })
	})
	return cmd
}

func fileEventText(event *agboxv1.FileEvent) string {
	text := fmt.Sprintf("%-10s  %s", event.GetKind(), fileText(event.GetPath()))
	if event.GetDirectory() {
		text += "/"
	}
	if event.GetOldPath() != "" {
		text += "  from " + fileText(event.GetOldPath())
	}
	return text
}
