package actors

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	journalv1 "github.com/agbox-dev/agbox/proto/agbox/journal/v1"
)

// checkpointEvery is how many events of a log are folded at most when a sandbox is loaded.
const checkpointEvery = 256

// checkpoint is state as the database keeps it.
func checkpoint(state lifecycle.State) *journalv1.Checkpoint {
	running := make(map[string]*timestamppb.Timestamp, len(state.Running))
	for id, at := range state.Running {
		running[id] = timestamppb.New(at)
	}
	services := make(map[string]int32, len(state.Services))
	for name, of := range state.Services {
		services[name] = int32(of)
	}
	return &journalv1.Checkpoint{
		Sequence: state.Sequence, Phase: state.Phase, Operation: int32(state.Operation), Reason: state.Reason,
		CreatedAt: timestamppb.New(state.CreatedAt), ChangedAt: timestamppb.New(state.ChangedAt), ActiveAt: timestamppb.New(state.ActiveAt),
		ErrorCode: state.ErrorCode, ErrorMessage: state.ErrorMessage, Running: running,
		Services: services, Ports: state.Ports, CommandEnded: state.CommandEnded,
		Grace: protoDuration(state.Grace), DrainUntil: protoTime(state.DrainUntil),
		Extended: state.Extended, ExpiresAt: protoTime(state.ExpiresAt), IdleTtl: protoDuration(state.IdleTTL),
		Lazy: state.Lazy, Detached: state.Detached, Recovered: state.Recovered, Restarts: state.Restarts, RestartAt: protoTime(state.RestartAt),
	}
}

// restore is the inverse of checkpoint; nil is a sandbox of which nothing has happened yet.
func restore(id string, c *journalv1.Checkpoint) lifecycle.State {
	if c == nil {
		return lifecycle.State{SandboxID: id}
	}
	state := lifecycle.State{
		SandboxID: id, Sequence: c.Sequence, Phase: c.Phase, Operation: lifecycle.Operation(c.Operation), Reason: c.Reason,
		CreatedAt: c.CreatedAt.AsTime(), ChangedAt: c.ChangedAt.AsTime(), ActiveAt: c.ActiveAt.AsTime(),
		ErrorCode: c.ErrorCode, ErrorMessage: c.ErrorMessage, Ports: c.Ports, CommandEnded: c.CommandEnded,
		Grace: goDuration(c.Grace), DrainUntil: goTime(c.DrainUntil),
		Extended: c.Extended, ExpiresAt: goTime(c.ExpiresAt), IdleTTL: goDuration(c.IdleTtl),
		Lazy: c.Lazy, Detached: c.Detached, Recovered: c.Recovered, Restarts: c.Restarts, RestartAt: goTime(c.RestartAt),
	}
	if len(c.Services) > 0 {
		state.Services = make(map[string]lifecycle.ServiceState, len(c.Services))
		for name, of := range c.Services {
			state.Services[name] = lifecycle.ServiceState(of)
		}
	}
	if len(c.Running) > 0 {
		state.Running = make(map[string]time.Time, len(c.Running))
		for id, at := range c.Running {
			state.Running[id] = at.AsTime()
		}
	}
	return state
}

func protoTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func goTime(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func protoDuration(d *time.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(*d)
}

func goDuration(d *durationpb.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	value := d.AsDuration()
	return &value
}
