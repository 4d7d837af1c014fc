package events_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestWholeLife: one subscriber sees it live, another afterwards, and both see the same; each event carries the state
// that the sandbox had by then.
func TestWholeLife(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	const id = "whole-life"
	if _, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: d.Image}}); err != nil {
		t.Fatal(err)
	}
	live := servertest.Follow(t, d, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id})
	if first := servertest.Next(t, live); !first.Replay {
		t.Errorf("what was there before the subscription is no replay: %v", first)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_READY)
	d.Exec(id, "true")
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	const stoppedAt = 7
	d.AwaitMatch(id, stoppedAt, func(e *agboxv1.SandboxEvent) bool { return e.EventType == agboxv1.EventType_SANDBOX_READY })
	d.Delete(id)

	const pending, ready, stopped = agboxv1.SandboxState_SANDBOX_STATE_PENDING, agboxv1.SandboxState_SANDBOX_STATE_READY, agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	const deleting, deleted = agboxv1.SandboxState_SANDBOX_STATE_DELETING, agboxv1.SandboxState_SANDBOX_STATE_DELETED
	past := servertest.Follow(t, d, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id})
	seen := map[string]bool{}
	for i, want := range []struct {
		kind          agboxv1.EventType
		state         agboxv1.SandboxState
		phase, reason string
	}{
		{agboxv1.EventType_SANDBOX_ACCEPTED, pending, "create", ""},
		{agboxv1.EventType_SANDBOX_PREPARING, pending, "materialize", ""},
		{agboxv1.EventType_SANDBOX_READY, ready, "", ""},
		{agboxv1.EventType_EXEC_STARTED, ready, "", ""},
		{agboxv1.EventType_EXEC_FINISHED, ready, "", ""},
		{agboxv1.EventType_SANDBOX_STOP_REQUESTED, ready, "", "stop_requested"},
		{agboxv1.EventType_SANDBOX_STOPPED, stopped, "", "stop_requested"},
		{agboxv1.EventType_SANDBOX_ACCEPTED, pending, "resume", ""},
		{agboxv1.EventType_SANDBOX_READY, ready, "", ""},
		{agboxv1.EventType_SANDBOX_DELETE_REQUESTED, deleting, "", "delete_requested"},
		{agboxv1.EventType_SANDBOX_DELETED, deleted, "", "delete_requested"},
	} {
		event := servertest.Next(t, past)
		details := event.GetSandboxPhase()
		if event.EventType != want.kind || event.SandboxState != want.state || details.GetPhase() != want.phase || details.GetReason() != want.reason {
			t.Errorf("event %d is %v, want %v", i+1, event, want)
		}
		if event.Sequence != uint64(i+1) || !event.Replay || event.Snapshot || event.SandboxId != id || seen[event.EventId] || event.OccurredAt == nil {
			t.Errorf("event %d is %v", i+1, event)
		}
		seen[event.EventId] = true
		if i == 0 {
			continue
		}
		if same := servertest.Next(t, live); same.EventId != event.EventId || same.Sequence != event.Sequence || i > 1 && same.Replay {
			t.Errorf("live, event %d is %v", i+1, same)
		}
	}
	// The history of what is DELETED stays open: it ends with the daemon, not before.
	d.Stop()
	for _, stream := range []*raw.Stream{live, past} {
		_, err := stream.Recv()
		servertest.Refused(t, err, codes.Unavailable, "DAEMON_SHUTTING_DOWN", "")
		if e, ok := errors.AsType[*raw.Error](err); ok && len(e.GRPCStatus().Details()) < 2 {
			t.Errorf("there is no hint when to try again: %v", e.GRPCStatus().Details())
		}
	}
}

// TestSnapshots: whatever state the sandbox is in, the first event tells it, and events follow from the anchor.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	expect := func(id string, kind agboxv1.EventType, state agboxv1.SandboxState, check func(*agboxv1.SandboxPhaseDetails) bool) {
		t.Helper()
		newest := servertest.NewestSequence(t, d, id)
		for _, from := range []uint64{0, newest} {
			stream := servertest.Follow(t, d, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: from, IncludeCurrentSnapshot: true})
			event := servertest.Next(t, stream)
			if !event.Snapshot || event.Replay || event.EventType != kind || event.SandboxState != state || event.Sequence != newest || !check(event.GetSandboxPhase()) {
				t.Errorf("the snapshot is %v, want %v %v at %d", event, kind, state, newest)
			}
			if from > 0 {
				continue
			}
			for event.Snapshot { // running commands follow
				event = servertest.Next(t, stream)
			}
			if !event.Replay || event.Sequence != 1 {
				t.Errorf("after the snapshot comes %v", event)
			}
		}
	}
	reason := func(want string) func(*agboxv1.SandboxPhaseDetails) bool {
		return func(details *agboxv1.SandboxPhaseDetails) bool { return details.GetReason() == want }
	}
	id := d.Create(&agboxv1.CreateSpec{})
	expect(id, agboxv1.EventType_SANDBOX_READY, agboxv1.SandboxState_SANDBOX_STATE_READY, reason(""))

	d.Script(id, `trap "" TERM`)
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	expect(id, agboxv1.EventType_SANDBOX_STOP_REQUESTED, agboxv1.SandboxState_SANDBOX_STATE_READY, reason("stop_requested"))
	d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	expect(id, agboxv1.EventType_SANDBOX_STOPPED, agboxv1.SandboxState_SANDBOX_STATE_STOPPED, reason("stop_requested"))
	d.Delete(id)
	expect(id, agboxv1.EventType_SANDBOX_DELETED, agboxv1.SandboxState_SANDBOX_STATE_DELETED, reason("delete_requested"))

	failed := d.Create(&agboxv1.CreateSpec{})
	if err := d.Engine.ContainerKill(t.Context(), "agbox-primary-"+failed, "KILL"); err != nil {
		t.Fatal(err)
	}
	d.Await(failed, agboxv1.EventType_SANDBOX_FAILED)
	expect(failed, agboxv1.EventType_SANDBOX_FAILED, agboxv1.SandboxState_SANDBOX_STATE_FAILED, func(details *agboxv1.SandboxPhaseDetails) bool {
		return details.ErrorCode == "CONTAINER_NOT_RUNNING" && details.ErrorMessage != ""
	})

	pending, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: d.Variant("entrypoint-stays")}})
	if err != nil {
		t.Fatal(err)
	}
	d.Await(pending.Sandbox.SandboxId, agboxv1.EventType_SANDBOX_PREPARING)
	expect(pending.Sandbox.SandboxId, agboxv1.EventType_SANDBOX_ACCEPTED, agboxv1.SandboxState_SANDBOX_STATE_PENDING, reason(""))
}
