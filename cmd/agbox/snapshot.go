package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/agbox-dev/agbox/cmd/agbox/value"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

func (a snapshotCommands) snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Keep a sandbox's files and make sandboxes from them",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.snapshotCreateCommand(), a.snapshotListCommand(), a.snapshotRemoveCommand())
	return cmd
}

func (a snapshotCommands) snapshotCreateCommand() *cobra.Command {
	var id string
	var labels value.Pairs
	cmd := &cobra.Command{
		Use:   "create SANDBOX",
		Short: "Make a snapshot of a sandbox and print its id",
		Long: `Make a snapshot of a sandbox's files and spec, and print its id. The sandbox stands still
meanwhile and goes on as before. What is mounted is not in it. A terminal shows how far it is; Ctrl-C
gives it up: there is no snapshot then, and the sandbox goes on at once.`,
		Example: `  agbox snapshot create my-sandbox --id with-deps --label job=42
  agbox sandbox create --snapshot with-deps`,
		Args: cobra.ExactArgs(1),
		RunE: a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
			made, err := a.capture(ctx, c, &agboxv1.SnapshotSandboxRequest{SandboxId: args[0], SnapshotId: id, Labels: labels.Values})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(&agboxv1.SnapshotSandboxResponse{Snapshot: made})
			}
			_, err = fmt.Fprintln(a.out, made.GetSnapshotId())
			return err
		}),
	}
	cmd.Flags().StringVar(&id, "id", "", "id of the snapshot (default: a UUID)")
	cmd.Flags().Var(&labels, "label", "label")
	return cmd
}

// capture makes a snapshot and shows how far it is.
func (a snapshotCommands) capture(ctx context.Context, c *sdk.Client, req *agboxv1.SnapshotSandboxRequest) (*agboxv1.Snapshot, error) {
	stream, err := c.Raw().CaptureSandbox(ctx, req)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var now atomic.Pointer[agboxv1.SnapshotProgress]
	began := time.Now()
	defer a.meter(func() string {
		text := now.Load().GetStage()
		if size := now.Load().GetSizeBytes(); size > 0 {
			text += " " + byteText(size)
		}
		return fmt.Sprintf("snapshot: %s (%s)", text, time.Since(began).Truncate(time.Second))
	})()
	for {
		progress, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if progress.GetSnapshot() != nil {
			return progress.GetSnapshot(), nil
		}
		now.Store(progress)
	}
}

func (a snapshotCommands) snapshotListCommand() *cobra.Command {
	var of string
	var labels value.Pairs
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List snapshots, newest first",
		Args:    cobra.NoArgs,
		RunE: a.with(func(ctx context.Context, c *sdk.Client, _ []string) error {
			resp, err := c.Raw().ListSnapshots(ctx, &agboxv1.ListSnapshotsRequest{SandboxId: of, LabelSelector: labels.Values})
			if err != nil {
				return err
			}
			return printAll(a.app, resp.GetSnapshots(), []string{"ID", "SANDBOX", "SIZE", "CREATED", "LABELS"}, func(s *agboxv1.Snapshot) []string {
				labels := labelText(s.GetLabels())
				if s.GetFork() {
					labels = "(of a fork)"
				}
				return []string{s.GetSnapshotId(), s.GetSandboxId(), byteText(s.GetSizeBytes()), timeText(s.GetCreatedAt().AsTime()), labels}
			})
		}),
	}
	cmd.Flags().Var(&labels, "label", "only those with the label; with several, with all of them")
	cmd.Flags().StringVar(&of, "sandbox", "", "only those of this sandbox")
	return cmd
}

func (a snapshotCommands) snapshotRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "rm SNAPSHOT...",
		Aliases: []string{"delete"},
		Short:   "Delete snapshots that no sandbox needs",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
			var failures []error
			for _, id := range args {
				failures = append(failures, c.DeleteSnapshot(ctx, id))
			}
			return errors.Join(failures...)
		}),
	}
}

func (a snapshotCommands) forkCommand() *cobra.Command {
	var id string
	var noWait bool
	var labels value.Pairs
	env := value.Pairs{Inherit: true}
	cmd := &cobra.Command{
		Use:   "fork SANDBOX",
		Short: "Create a sandbox from what another one is now and print its id",
		Long: `Create a sandbox that begins with another one's files and spec as they are now, wait until
it is ready, and print its id. The other one goes on as before.`,
		Args: cobra.ExactArgs(1),
		RunE: a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
			opts := []sdk.CreateOption{sdk.WithSandboxID(id), sdk.WithWait(!noWait)}
			if a.onTerminal() {
				opts = append(opts, sdk.WithProgress(a.progress))
			}
			box, err := c.Fork(ctx, args[0], sdk.Spec{Env: env.Values, Labels: labels.Values}, opts...)
			return a.created(ctx, c, box, err)
		}),
	}
	cmd.Flags().StringVar(&id, "id", "", "id of the fork, never used before (default: a UUID)")
	cmd.Flags().Var(&env, "env", "environment variable beside the other one's; KEY alone takes the value from here")
	cmd.Flags().Var(&labels, "label", "label beside the other one's")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the fork is accepted")
	return cmd
}
