package lifecycle_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	journalv1 "github.com/agbox-dev/agbox/proto/agbox/journal/v1"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

func anyCommand(t *rapid.T) lifecycle.Command {
	exec := rapid.SampledFrom([]string{"exec-1", "exec-2", "exec-3"}).Draw(t, "exec")
	operation := lifecycle.Operation(rapid.IntRange(0, int(lifecycle.Restarting)).Draw(t, "operation"))
	return rapid.SampledFrom([]lifecycle.Command{
		lifecycle.Create{}, lifecycle.Resume{}, lifecycle.Stop{Reason: "stop_requested"}, lifecycle.Delete{Reason: "delete_requested"},
		lifecycle.StartExec{ExecID: exec}, lifecycle.CancelExec{ExecID: exec},
		lifecycle.ExecEnded{ExecID: exec, Result: finished},
		lifecycle.Preparing{Phase: "materialize"}, lifecycle.ServiceReported{Service: "db"},
		lifecycle.OperationDone{Operation: operation}, lifecycle.OperationDone{Operation: operation},
		lifecycle.OperationFailed{Operation: operation, Message: "m"}, lifecycle.Died{Code: "CONTAINER_NOT_RUNNING"},
		lifecycle.Quarantined{Message: "crashed"}, lifecycle.Stop{Force: true},
		lifecycle.Pause{}, lifecycle.Unpause{}, lifecycle.Drain{Until: start}, lifecycle.Extend{ExpiresAt: &start},
		lifecycle.Create{Lazy: true}, lifecycle.Use{}, lifecycle.Detach{}, restarted{lifecycle.Died{Code: "X"}},
		restarted{lifecycle.OperationFailed{Operation: operation}}, restarted{lifecycle.CommandEnded{Result: finished, Fails: true}},
		lifecycle.Snapshot{ID: exec}, lifecycle.SnapshotEnded{ID: exec}, lifecycle.SnapshotEnded{ID: exec, Code: "X"},
		lifecycle.ServiceReported{Service: exec, Code: "X"}, lifecycle.CommandEnded{Result: finished, Fails: exec == "exec-1"},
	}).Draw(t, "command")
}

// TestInvariants holds any order of commands against what every log promises.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSandbox()
		for range rapid.IntRange(1, 60).Draw(t, "length") {
			before, kept := s.state, proto.Clone(s.state.State)
			events, err := s.do(anyCommand(t))
			if err != nil && len(events) > 0 {
				t.Fatal("a refusal came with events")
			}
			if !proto.Equal(before.State, kept) {
				t.Fatalf("the state before is now\n%+v, it was\n%+v", before, kept)
			}
			if before.Phase == lifecycle.Deleted && len(events) > 0 {
				t.Fatalf("events after DELETED: %v", events)
			}
			if over := s.state.Phase; !s.state.Up() && over != lifecycle.Deleting && len(s.state.Running) > 0 {
				t.Fatalf("execs run in a sandbox that is %v", over)
			}
		}
		checkLog(t, s)
		checkDelete(t, s)
	})
}

// checkLog: sequences grow by one, ids are unique, each exec ends once, and the log alone gives the live state, also after it, or
// the state up to some event, was stored.
func checkLog(t *rapid.T, s *sandbox) {
	ids := map[string]bool{}
	running := map[string]bool{}
	folded := lifecycle.New(s.state.SandboxID, nil)
	checkpoint := rapid.IntRange(0, len(s.log)).Draw(t, "checkpoint")
	for i, event := range s.log {
		if event.Sequence != uint64(i+1) || ids[event.EventId] {
			t.Fatalf("event %d has sequence %d and id %s", i, event.Sequence, event.EventId)
		}
		ids[event.EventId] = true
		if exec := event.GetExec().GetExecId(); exec != "" {
			if started := event.EventType == agboxv1.EventType_EXEC_STARTED; started == running[exec] {
				t.Fatalf("%v of %s while running is %v", event.EventType, exec, running[exec])
			}
			running[exec] = !running[exec]
		}
		stored, err := proto.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		read := &agboxv1.SandboxEvent{}
		if err := proto.Unmarshal(stored, read); err != nil {
			t.Fatal(err)
		}
		if folded = lifecycle.Fold(folded, read); i == checkpoint {
			stored, err := proto.Marshal(folded.State)
			read := &journalv1.State{}
			if err := errors.Join(err, proto.Unmarshal(stored, read)); err != nil {
				t.Fatal(err)
			}
			folded = lifecycle.New(folded.SandboxID, read)
		}
	}
	if folded.SandboxID != s.state.SandboxID || !proto.Equal(folded.State, s.state.State) {
		t.Fatalf("the log folds to\n%+v, the live state is\n%+v", folded, s.state)
	}
}

// checkDelete: whatever happened, a sandbox can be deleted.
func checkDelete(t *rapid.T, s *sandbox) {
	if s.state.Phase == lifecycle.None {
		return
	}
	if _, err := s.do(lifecycle.Delete{Reason: "delete_requested"}); err != nil {
		t.Fatalf("delete in %v: %v", s.state.Phase, err)
	}
	if _, err := s.do(lifecycle.OperationDone{Operation: lifecycle.Removing}); err != nil {
		t.Fatal(err)
	}
	if s.state.Phase != lifecycle.Deleted || len(s.state.Running) != 0 || len(s.state.Snapshots) != 0 || s.state.Operation != lifecycle.NoOperation {
		t.Fatalf("after the delete the sandbox is %+v", s.state)
	}
}
