package servertest

import (
	"strings"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
)

// FailureOf waits for FAILED and returns what it says.
func FailureOf(t *testing.T, d *Daemon, id string) *agboxv1.SandboxPhaseDetails {
	t.Helper()
	events := d.Await(id, agboxv1.EventType_SANDBOX_FAILED)
	return events[len(events)-1].GetSandboxPhase()
}

// Follow subscribes until the end of the test.
func Follow(t *testing.T, d *Daemon, request *agboxv1.SubscribeSandboxEventsRequest) *raw.Stream {
	t.Helper()
	stream, err := d.SubscribeSandboxEvents(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Close)
	return stream
}

// Next is the next event of a subscription.
func Next(t *testing.T, stream *raw.Stream) *agboxv1.SandboxEvent {
	t.Helper()
	event, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return event
}

// NewestSequence is the sequence of the sandbox's last event.
func NewestSequence(t *testing.T, d *Daemon, id string) uint64 {
	t.Helper()
	got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	return got.Sandbox.LastEventSequence
}

// Kinds are the types of events, in short.
func Kinds(events []*agboxv1.SandboxEvent) string {
	var list []string
	for _, e := range events {
		list = append(list, strings.TrimPrefix(e.EventType.String(), "SANDBOX_"))
	}
	return strings.Join(list, " ")
}

// AwaitKind returns the first event of a type after from.
func AwaitKind(d *Daemon, id string, from uint64, kind agboxv1.EventType) *agboxv1.SandboxEvent {
	events := d.AwaitMatch(id, from, func(e *agboxv1.SandboxEvent) bool { return e.EventType == kind })
	return events[len(events)-1]
}

// CommandEnded waits for the end of the sandbox's own command.
func CommandEnded(t *testing.T, d *Daemon, id string, from uint64) *agboxv1.SandboxEvent {
	t.Helper()
	events := d.AwaitMatch(id, from, func(e *agboxv1.SandboxEvent) bool { return e.EventType == agboxv1.EventType_SANDBOX_COMMAND_ENDED })
	return events[len(events)-1]
}

// CreateEnded tells the end of a create, be it good or bad.
func CreateEnded(e *agboxv1.SandboxEvent) bool {
	return e.EventType == agboxv1.EventType_SANDBOX_READY || e.EventType == agboxv1.EventType_SANDBOX_FAILED
}
