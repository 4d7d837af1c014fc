package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

func (a daemonCommands) infoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "info",
		Short: "Show what agboxd runs on and how much of it is in use",
		Args:  cobra.NoArgs,
		RunE: a.with(func(ctx context.Context, c *sdk.Client, _ []string) error {
			if a.json {
				resp, err := c.Raw().Info(ctx, &agboxv1.InfoRequest{})
				if err != nil {
					return err
				}
				return a.printJSON(resp)
			}
			return a.info(ctx, c)
		}),
	}
}

func (a daemonCommands) info(ctx context.Context, c *sdk.Client) error {
	info, err := c.Info(ctx)
	if err != nil {
		return err
	}
	var sandboxes []string
	for _, state := range slices.Sorted(maps.Keys(info.Sandboxes)) {
		sandboxes = append(sandboxes, fmt.Sprintf("%d %s", info.Sandboxes[state], state))
	}
	isolation := "on"
	if info.IsolationProblem != "" {
		isolation = "off: " + info.IsolationProblem
	}
	rows := [][]string{
		{"agboxd", info.Version},
		{"engine", info.EngineVersion + " (API " + info.EngineAPIVersion + ") on " + info.EngineOS},
		{"storage", info.StorageDriver},
		{"isolation", isolation},
		{"sandboxes", cmp.Or(strings.Join(sandboxes, ", "), "none")},
		{"running execs", fmt.Sprint(info.RunningExecs)},
		{"networks", fmt.Sprintf("%d of %d in %s", info.SubnetsUsed, info.SubnetsTotal, info.NetworkPool)},
		{"ready networks", fmt.Sprintf("%d of %d", info.NetworksReady, info.NetworksKept)},
		{"engine's work", fmt.Sprintf("%s under way, at most %d, %s waiting", byClass(info.EngineRunning), info.EngineSlots, byClass(info.EngineWaiting))},
	}
	for _, c := range info.Pool {
		row := fmt.Sprintf("%s (%s): %d of %d ready, %d being made; %d creates took one, %d found none", c.Image, c.Class, c.Ready, c.Size, c.Making, c.Hits, c.Misses)
		if c.Problem != "" {
			row += "; " + c.Problem
		}
		rows = append(rows, []string{"made ahead", row})
	}
	for _, why := range slices.Sorted(maps.Keys(info.PoolMisses)) {
		rows = append(rows, []string{"not taken", fmt.Sprintf("%d: %s", info.PoolMisses[why], why)})
	}
	for _, id := range slices.Sorted(maps.Keys(info.Orphans)) {
		rows = append(rows, []string{"orphan", id + ", which the database does not know, is removed " + timeText(info.Orphans[id]) + ": agboxd --adopt takes it in"})
	}
	return a.printTable(rows)
}

// byClass is like "3 person, 1 cleanup".
func byClass(work map[string]int) string {
	var parts []string
	for _, class := range slices.Sorted(maps.Keys(work)) {
		parts = append(parts, fmt.Sprintf("%d %s", work[class], class))
	}
	return cmp.Or(strings.Join(parts, ", "), "0")
}
