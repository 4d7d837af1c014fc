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

func (a daemonCommands) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Examine agboxd, its engine and this host, and say what mends what is wrong",
		Long: `Examine agboxd, its engine and this host: versions with known escapes, what confines sandboxes,
packet rules, disks, networks, inotify, and what nobody owns.

Exit codes: 0 if no promise is broken, warnings included; 1 if one is.`,
		Args: cobra.NoArgs,
		RunE: a.with(func(ctx context.Context, c *sdk.Client, _ []string) error {
			resp, err := c.Raw().Doctor(ctx, &agboxv1.DoctorRequest{})
			if errors.Is(err, sdk.ErrUnavailable) {
				resp, err = &agboxv1.DoctorResponse{Findings: []*agboxv1.Finding{{
					Check: "agboxd", Level: agboxv1.FindingLevel_FINDING_LEVEL_PROBLEM, Summary: err.Error(), Remedy: "start agboxd",
				}}}, nil
			}
			if err != nil {
				return err
			}
			return a.diagnosis(resp)
		}),
	}
}

// diagnosis shows the findings and makes the exit code of the worst.
func (a daemonCommands) diagnosis(resp *agboxv1.DoctorResponse) error {
	if a.json {
		if err := a.printJSON(resp); err != nil {
			return err
		}
	}
	problems := 0
	for _, f := range resp.GetFindings() {
		level := strings.ToLower(strings.TrimPrefix(f.GetLevel().String(), "FINDING_LEVEL_"))
		if f.GetLevel() == agboxv1.FindingLevel_FINDING_LEVEL_PROBLEM {
			problems++
		}
		if a.json {
			continue
		}
		fmt.Fprintf(a.out, "%-8s %-12s %s\n", level, f.GetCheck(), f.GetSummary())
		if f.GetRemedy() != "" {
			fmt.Fprintf(a.out, "%21s %s\n", "->", f.GetRemedy())
		}
	}
	if problems > 0 {
		return &statusError{code: exitError}
	}
	return nil
}
