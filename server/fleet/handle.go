package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Handle is a sandbox as clients see it.
func Handle(v actors.View) *agboxv1.SandboxHandle {
	return &agboxv1.SandboxHandle{
		ExpiresAt: deadline(v.ExpiresAt), IdleAt: deadline(v.IdleAt), LeaseEndsAt: deadline(v.LeaseEndsAt),
		Restarts:          v.State.Restarts,
		SandboxId:         v.State.SandboxID,
		State:             v.State.Phase,
		LastEventSequence: v.State.Sequence,
		RequiredServices:  v.Spec.RequiredServices,
		OptionalServices:  v.Spec.OptionalServices,
		Labels:            v.Spec.Labels,
		CreatedAt:         v.State.CreatedAt,
		Image:             v.Spec.Image,
		ErrorCode:         v.State.ErrorCode,
		ErrorMessage:      v.State.ErrorMessage,
		StateChangedAt:    v.State.ChangedAt,
		Ports:             v.State.Ports,
		Recovered:         v.State.Recovered,
		CpuLimit:          v.Spec.CpuLimit,
		MemoryLimit:       v.Spec.MemoryLimit,
	}
}

func deadline(at time.Time) *timestamppb.Timestamp {
	if at.IsZero() {
		return nil
	}
	return timestamppb.New(at)
}

// snapshot tells the current state as events: one for the sandbox, one for each running exec, oldest first.
func snapshot(v actors.View) []*agboxv1.SandboxEvent {
	state := v.State
	phase := &agboxv1.SandboxPhaseDetails{ErrorCode: state.ErrorCode, ErrorMessage: state.ErrorMessage}
	if state.Operation == lifecycle.Stopping || state.Operation == lifecycle.Killing || state.Phase == lifecycle.Stopped ||
		state.Phase == lifecycle.Deleting || state.Phase == lifecycle.Deleted {
		phase.Reason = state.Reason
	}
	current := func(kind agboxv1.EventType) *agboxv1.SandboxEvent {
		return &agboxv1.SandboxEvent{
			EventId: state.SandboxID + "/snapshot", Sequence: state.Sequence, SandboxId: state.SandboxID,
			EventType: kind, OccurredAt: state.ChangedAt, Snapshot: true, SandboxState: state.Phase,
		}
	}
	sandbox := current(snapshotKind(state))
	sandbox.Details = &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: phase}
	events := []*agboxv1.SandboxEvent{sandbox}
	for _, id := range RunningIDs(state) {
		exec := current(agboxv1.EventType_EXEC_STARTED)
		exec.EventId += "/" + id
		exec.OccurredAt = state.Running[id]
		exec.Details = &agboxv1.SandboxEvent_Exec{Exec: &agboxv1.ExecEventDetails{
			ExecId: id, ExecState: agboxv1.ExecState_EXEC_STATE_RUNNING,
		}}
		events = append(events, exec)
	}
	return events
}

func snapshotKind(state lifecycle.State) agboxv1.EventType {
	switch state.Phase {
	case lifecycle.Ready, lifecycle.Paused, lifecycle.Draining:
		switch {
		case state.Operation == lifecycle.Stopping, state.Operation == lifecycle.Killing:
			return agboxv1.EventType_SANDBOX_STOP_REQUESTED
		case state.Phase == lifecycle.Paused:
			return agboxv1.EventType_SANDBOX_PAUSED
		case state.Phase == lifecycle.Draining:
			return agboxv1.EventType_SANDBOX_DRAIN_REQUESTED
		}
		return agboxv1.EventType_SANDBOX_READY
	case lifecycle.Failed:
		return agboxv1.EventType_SANDBOX_FAILED
	case lifecycle.Stopped:
		return agboxv1.EventType_SANDBOX_STOPPED
	case lifecycle.Deleting:
		return agboxv1.EventType_SANDBOX_DELETE_REQUESTED
	case lifecycle.Deleted:
		return agboxv1.EventType_SANDBOX_DELETED
	case lifecycle.Dormant:
		return agboxv1.EventType_SANDBOX_DORMANT
	case lifecycle.Pending:
		if state.Operation == lifecycle.Restarting {
			return agboxv1.EventType_SANDBOX_RESTARTING
		}
	}
	return agboxv1.EventType_SANDBOX_ACCEPTED
}

// RunningIDs lists the running execs, oldest first.
func RunningIDs(state lifecycle.State) []string {
	ids := make([]string, 0, len(state.Running))
	for id := range state.Running {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(state.Running[a].AsTime().Compare(state.Running[b].AsTime()), strings.Compare(a, b))
	})
	return ids
}
