package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

func (a *app) listCommand() *cobra.Command {
	var all bool
	var chosen selector
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List sandboxes, newest first",
		Example: `  agbox sandbox list --label job=42
  agbox sandbox list --state failed --state stopped
  agbox --json sandbox list --all | jq -r .sandbox_id`,
		Args: func(cmd *cobra.Command, args []string) error {
			return errors.Join(cobra.NoArgs(cmd, args), chosen.check())
		},
		RunE: a.with(func(ctx context.Context, c *sdk.Client, _ []string) error {
			return a.list(ctx, c, &agboxv1.ListSandboxesRequest{IncludeDeleted: all,
				LabelSelector: chosen.labels.Values, States: chosen.protoStates()})
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "deleted ones too")
	chosen.flags(cmd, "only those")
	return cmd
}

func (a *app) list(ctx context.Context, c *sdk.Client, req *agboxv1.ListSandboxesRequest) error {
	resp, err := c.Raw().ListSandboxes(ctx, req)
	if err != nil {
		return err
	}
	return printAll(a, resp.GetSandboxes(), []string{"ID", "STATE", "IMAGE", "CREATED", "LABELS"}, func(box *agboxv1.SandboxHandle) []string {
		return []string{box.GetSandboxId(), strings.TrimPrefix(box.GetState().String(), "SANDBOX_STATE_"),
			box.GetImage(), timeText(box.GetCreatedAt().AsTime()), labelText(box.GetLabels())}
	})
}

func (a *app) getCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get SANDBOX",
		Short: "Show one sandbox",
		Args:  cobra.ExactArgs(1),
		RunE: a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
			if a.json {
				resp, err := c.Raw().GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: args[0]})
				if err != nil {
					return err
				}
				return a.printJSON(resp)
			}
			return a.get(ctx, c, args[0])
		}),
	}
}

func (a *app) get(ctx context.Context, c *sdk.Client, id string) error {
	box, err := c.GetSandbox(ctx, id)
	if err != nil {
		return err
	}
	rows := [][]string{
		{"id", box.ID},
		{"state", string(box.State) + " since " + timeText(box.StateChangedAt)},
		{"image", box.Image},
		{"created", timeText(box.CreatedAt)},
	}
	if box.Recovered {
		rows[1][1] += ", recovered"
	}
	optional := func(key, value string) {
		if value != "" {
			rows = append(rows, []string{key, value})
		}
	}
	optional("labels", labelText(box.Labels))
	optional("services", serviceText(box.RequiredServices))
	optional("optional services", serviceText(box.OptionalServices))
	if !box.ExpiresAt.IsZero() {
		optional("expires", timeText(box.ExpiresAt))
	}
	if !box.IdleAt.IsZero() {
		optional("idle", timeText(box.IdleAt))
	}
	if !box.LeaseEndsAt.IsZero() {
		optional("lease ends", timeText(box.LeaseEndsAt))
	}
	if box.Restarts > 0 {
		optional("restarts", fmt.Sprint(box.Restarts))
	}
	optional("ports", portText(box.Ports))
	optional("error", strings.TrimSpace(box.ErrorCode+" "+box.ErrorMessage))
	return a.printTable(rows)
}

func serviceText(services []sdk.Service) string {
	var parts []string
	for _, s := range services {
		parts = append(parts, s.Name+" ("+s.Image+")")
	}
	return strings.Join(parts, ", ")
}

func portText(ports []sdk.Port) string {
	var parts []string
	for _, p := range ports {
		parts = append(parts, fmt.Sprintf("%s:%d -> %d/%s", p.HostIP, p.HostPort, p.ContainerPort, p.Protocol))
	}
	return strings.Join(parts, ", ")
}
