package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/docker/go-units"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/spf13/cobra"
)

func (a *app) statsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stats SANDBOX",
		Short: "Show what a sandbox and its services use now",
		Args:  cobra.ExactArgs(1),
		RunE: a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
			if a.json {
				return a.statsJSON(ctx, c, args[0])
			}
			return a.stats(ctx, c, args[0])
		}),
	}
}

func (a *app) stats(ctx context.Context, c *sdk.Client, id string) error {
	stats, err := c.Stats(ctx, id)
	if err != nil {
		return err
	}
	rows := [][]string{{"CONTAINER", "CPU TIME", "MEMORY", "PIDS", "NET IN / OUT", "DISK READ / WRITTEN"}}
	for _, s := range stats {
		rows = append(rows, []string{
			cmp.Or(s.Service, "(primary)"), s.CPUTime.Round(time.Millisecond).String(),
			byteText(s.MemoryBytes) + " of " + byteText(s.MemoryLimitBytes), fmt.Sprint(s.Pids),
			byteText(s.NetworkReceivedBytes) + " / " + byteText(s.NetworkSentBytes),
			byteText(s.DiskReadBytes) + " / " + byteText(s.DiskWrittenBytes),
		})
	}
	return a.printTable(rows)
}

func (a *app) statsJSON(ctx context.Context, c *sdk.Client, id string) error {
	resp, err := c.Raw().GetStats(ctx, &agboxv1.GetStatsRequest{SandboxId: id})
	if err != nil {
		return err
	}
	for _, container := range resp.GetContainers() {
		if err := a.printJSON(container); err != nil {
			return err
		}
	}
	return nil
}

func byteText(n uint64) string { return units.BytesSize(float64(n)) }
