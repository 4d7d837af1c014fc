package main

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/docker/go-units"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

type eventFlags struct {
	from             uint64
	follow, snapshot bool
}

func (a *app) eventsCommand() *cobra.Command {
	var f eventFlags
	cmd := &cobra.Command{
		Use:   "events SANDBOX",
		Short: "Show what happened to a sandbox",
		Long: `Show the events of a sandbox up to now; with --follow, stay and show what happens until
the sandbox is deleted.`,
		Example: `  agbox sandbox events my-sandbox
  agbox --json sandbox events my-sandbox --follow | jq -r .event_type`,
		Args: cobra.ExactArgs(1),
		RunE: a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
			return a.events(ctx, c, args[0], f)
		}),
	}
	cmd.Flags().Uint64Var(&f.from, "from", 0, "only events after this sequence")
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "stay for what is still to come")
	cmd.Flags().BoolVar(&f.snapshot, "snapshot", false, "show the current state and running execs first")
	return cmd
}

func (a *app) events(ctx context.Context, c *sdk.Client, id string, f eventFlags) error {
	req := &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: f.from, IncludeCurrentSnapshot: f.snapshot}
	last := uint64(math.MaxUint64)
	if !f.follow {
		box, err := c.GetSandbox(ctx, id)
		if err != nil {
			return err
		}
		last = box.LastEventSequence
		if f.from == last {
			if !f.snapshot {
				return nil
			}
			req.FromSequence-- // the newest event marks the end of the snapshot, unseen
		}
	}
	for event, err := range c.Raw().Follow(ctx, req) {
		if err != nil {
			return err
		}
		if event.GetSnapshot() || event.GetSequence() > f.from {
			if err := a.printEvent(event); err != nil {
				return err
			}
		}
		if !event.GetSnapshot() && event.GetSequence() >= last {
			break
		}
	}
	return nil
}

// printEvent writes one line at once, so the columns have fixed widths.
func (a *app) printEvent(event *agboxv1.SandboxEvent) error {
	if a.json {
		return a.printJSON(event)
	}
	sequence := fmt.Sprint(event.GetSequence())
	if event.GetSnapshot() {
		sequence = "now"
	}
	line := fmt.Sprintf("%5s  %s  %-25s %-8s  %s", sequence,
		event.GetOccurredAt().AsTime().Local().Format("2006-01-02 15:04:05.000"), event.GetEventType(),
		strings.TrimPrefix(event.GetSandboxState().String(), "SANDBOX_STATE_"), eventText(event))
	return a.printLine("%s", strings.TrimRight(line, " "))
}

// phaseQueued is the phase of a create that waits for its turn.
const phaseQueued = "queued"

func eventText(event *agboxv1.SandboxEvent) string {
	phase, exec, service, command := event.GetSandboxPhase(), event.GetExec(), event.GetService(), event.GetCommand()
	snapshot := event.GetSnapshotDetails()
	parts := []string{phase.GetPhase(), phase.GetImage(), phase.GetReason(), exec.GetExecId(), service.GetServiceName(), snapshot.GetSnapshotId(), snapshot.GetForkId()}
	if phase.GetBytesTotal() > 0 {
		parts = append(parts, units.HumanSize(float64(phase.GetBytesDone()))+" of "+units.HumanSize(float64(phase.GetBytesTotal())))
	}
	if phase.GetPhase() == phaseQueued {
		parts = append(parts, fmt.Sprintf("%d before it", phase.GetQueuedBefore()))
	}
	switch signal := exec.GetSignal() + command.GetSignal(); {
	case signal != 0:
		parts = append(parts, fmt.Sprintf("signal %d", signal))
	case event.GetEventType() == agboxv1.EventType_EXEC_FINISHED, command != nil:
		parts = append(parts, fmt.Sprintf("exit %d", exec.GetExitCode()+command.GetExitCode()))
	}
	parts = append(parts, remarks(exec.GetResources())...)
	parts = append(parts,
		phase.GetErrorCode()+exec.GetErrorCode()+service.GetErrorCode()+command.GetErrorCode()+snapshot.GetErrorCode(),
		phase.GetErrorMessage()+exec.GetErrorMessage()+service.GetErrorMessage()+command.GetErrorMessage()+snapshot.GetErrorMessage())
	text := ""
	for _, part := range parts {
		if part != "" {
			text += part + "  "
		}
	}
	return text
}
