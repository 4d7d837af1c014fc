package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/docker/go-units"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spf13/cobra"

	"github.com/agbox-dev/agbox/cmd/agbox/value"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

func (a daemonCommands) statsCommand() *cobra.Command {
	var labels value.Pairs
	var watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "stats SANDBOX | --watch",
		Short: "Show what a sandbox and its services use now, or all sandboxes go on using",
		Example: `  agbox sandbox stats my-sandbox
  agbox sandbox stats --watch -l job=42 --interval 5s`,
		Args: func(cmd *cobra.Command, args []string) error {
			if watch {
				return cobra.NoArgs(cmd, args)
			}
			for _, flag := range []string{"label", "interval"} {
				if cmd.Flags().Changed(flag) {
					return fmt.Errorf("--%s is for --watch", flag)
				}
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
			if watch {
				return a.watchStats(ctx, c, &agboxv1.WatchStatsRequest{LabelSelector: labels.Values, Interval: durationpb.New(interval)})
			}
			return a.stats(ctx, c, args[0])
		}),
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "go on, with every sandbox that runs")
	cmd.Flags().VarP(&labels, "label", "l", "only sandboxes with the label; with several, with all of them")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time between two readings of a sandbox")
	return cmd
}

// watchStats prints a line for each container each time, until interrupted or until agboxd goes away.
func (a daemonCommands) watchStats(ctx context.Context, c *sdk.Client, req *agboxv1.WatchStatsRequest) error {
	stream, err := c.Raw().WatchStats(ctx, req)
	return printStream(a.app, stream, err, errStreamEnded, func(stats *agboxv1.SandboxStats) (err error) {
		for _, s := range stats.GetContainers() {
			err = errors.Join(err, a.printLine("%s  %s  cpu %s  memory %s  pids %d", stats.GetSandboxId(), cmp.Or(s.GetServiceName(), "(primary)"),
				s.GetCpuTime().AsDuration().Round(time.Millisecond), byteText(s.GetMemoryBytes()), s.GetPids()))
		}
		return err
	})
}

func (a daemonCommands) stats(ctx context.Context, c *sdk.Client, id string) error {
	resp, err := c.Raw().GetStats(ctx, &agboxv1.GetStatsRequest{SandboxId: id})
	if err != nil {
		return err
	}
	head := []string{"CONTAINER", "CPU TIME", "MEMORY", "PIDS", "NET IN / OUT", "DISK READ / WRITTEN"}
	return printAll(a.app, resp.GetContainers(), head, func(s *agboxv1.ContainerStats) []string {
		return []string{
			cmp.Or(s.GetServiceName(), "(primary)"), s.GetCpuTime().AsDuration().Round(time.Millisecond).String(),
			byteText(s.GetMemoryBytes()) + " of " + byteText(s.GetMemoryLimitBytes()), fmt.Sprint(s.GetPids()),
			byteText(s.GetNetworkReceivedBytes()) + " / " + byteText(s.GetNetworkSentBytes()),
			byteText(s.GetDiskReadBytes()) + " / " + byteText(s.GetDiskWrittenBytes()),
		}
	})
}

func byteText(n uint64) string { return units.BytesSize(float64(n)) }
