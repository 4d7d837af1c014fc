package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

func (a daemonCommands) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of agbox, and of agboxd when it can be reached",
		Args:  cobra.NoArgs,
		RunE:  a.with(a.version),
	}
}

func (a daemonCommands) version(ctx context.Context, c *sdk.Client, _ []string) error {
	versions := struct {
		Agbox  string `json:"agbox"`
		Agboxd string `json:"agboxd,omitempty"`
	}{Agbox: buildVersion()}
	daemon, err := c.Ping(ctx)
	if err != nil && !errors.Is(err, sdk.ErrUnavailable) {
		return err
	}
	versions.Agboxd = daemon.Version
	if a.json {
		return json.NewEncoder(a.out).Encode(versions)
	}
	fmt.Fprintln(a.out, "agbox ", versions.Agbox)
	if err != nil {
		fmt.Fprintln(a.out, "agboxd not reachable")
		return nil
	}
	fmt.Fprintln(a.out, "agboxd", versions.Agboxd)
	return nil
}

func (a daemonCommands) pingCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ping",
		Short: "Ask whether agboxd runs",
		Args:  cobra.NoArgs,
		RunE:  a.with(a.ping),
	}
}

func (a daemonCommands) ping(ctx context.Context, c *sdk.Client, _ []string) error {
	resp, err := c.Raw().Ping(ctx, &agboxv1.PingRequest{})
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(resp)
	}
	if err := a.printLine("%s %s answers on %s", resp.GetDaemon(), resp.GetVersion(), c.Raw().Address()); err != nil {
		return err
	}
	if problem := resp.GetIsolationProblem(); problem != "" {
		return a.printLine("sandboxes are not kept from this host and from each other: %s", problem)
	}
	return nil
}
