package server_test

import (
	"maps"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/servertest"
)

// concerns fails the test unless err names these ids.
func concerns(t *testing.T, err error, want map[string]string) {
	t.Helper()
	e, ok := err.(*raw.Error)
	if !ok {
		t.Errorf("got %v, want an error with %v", err, want)
		return
	}
	for key, value := range want {
		if e.Metadata[key] != value {
			t.Errorf("%s: metadata %s is %q, want %q", e.Reason, key, e.Metadata[key], value)
		}
	}
}

// TestUnknownNames: every call that names a sandbox or an exec says which one is not there.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	ctx, id, execID := t.Context(), "never-was", "exec-never-was"
	for name, call := range map[string]func() error{
		"GetSandbox":    func() error { _, err := d.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: id}); return err },
		"StopSandbox":   func() error { _, err := d.StopSandbox(ctx, &agboxv1.StopSandboxRequest{SandboxId: id}); return err },
		"ResumeSandbox": func() error { _, err := d.ResumeSandbox(ctx, &agboxv1.ResumeSandboxRequest{SandboxId: id}); return err },
		"DeleteSandbox": func() error { _, err := d.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id}); return err },
		"CreateExec": func() error {
			_, err := d.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}})
			return err
		},
		"ListActiveExecs": func() error {
			_, err := d.ListActiveExecs(ctx, &agboxv1.ListActiveExecsRequest{SandboxId: &id})
			return err
		},
		"SubscribeSandboxEvents": func() error {
			stream, err := d.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id})
			if err != nil {
				return err
			}
			defer stream.Close()
			_, err = stream.Recv()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := call()
			servertest.Refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "")
			concerns(t, err, map[string]string{"sandbox_id": id})
		})
	}
	_, err := d.GetExec(ctx, &agboxv1.GetExecRequest{ExecId: execID})
	servertest.Refused(t, err, codes.NotFound, "EXEC_NOT_FOUND", "")
	concerns(t, err, map[string]string{"exec_id": execID})
}

// TestRefusalsLeaveNoTrace: after each refusal, in each state, the log of the sandbox is what it was.
func TestRefusalsLeaveNoTrace(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	ctx := t.Context()
	id, other := d.Create(&agboxv1.CreateSpec{}), d.Create(&agboxv1.CreateSpec{})
	const execID = "used-exec"
	d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, ExecId: execID, Command: []string{"true"}})
	d.ExecEnd(id, execID)

	exec := func(sandboxID, execID string) error {
		_, err := d.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: sandboxID, ExecId: execID, Command: []string{"true"}})
		return err
	}
	stop := func() error { _, err := d.StopSandbox(ctx, &agboxv1.StopSandboxRequest{SandboxId: id}); return err }
	resume := func() error { _, err := d.ResumeSandbox(ctx, &agboxv1.ResumeSandboxRequest{SandboxId: id}); return err }
	sequences := func() map[string]uint64 {
		t.Helper()
		list, err := d.ListSandboxes(ctx, &agboxv1.ListSandboxesRequest{IncludeDeleted: true})
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]uint64{}
		for _, s := range list.Sandboxes {
			all[s.SandboxId] = s.LastEventSequence
		}
		return all
	}
	idIsTaken := func(when string) {
		t.Helper()
		t.Log(when)
		before := sequences()
		_, err := d.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: d.Image}})
		servertest.Refused(t, err, codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS", "")
		concerns(t, err, map[string]string{"sandbox_id": id})
		err = exec(other, execID) // an exec id is one for all sandboxes
		servertest.Refused(t, err, codes.AlreadyExists, "EXEC_ID_ALREADY_EXISTS", "")
		concerns(t, err, map[string]string{"exec_id": execID, "sandbox_id": other})
		if after := sequences(); !maps.Equal(before, after) {
			t.Errorf("the sequences went from %v to %v", before, after)
		}
	}

	idIsTaken("READY")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	idIsTaken("STOPPED")
	before := sequences()
	servertest.Refused(t, stop(), codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "")
	servertest.Refused(t, exec(id, "early-exec"), codes.FailedPrecondition, "SANDBOX_NOT_READY", "")
	_, err := d.GetExec(ctx, &agboxv1.GetExecRequest{ExecId: "early-exec"})
	servertest.Refused(t, err, codes.NotFound, "EXEC_NOT_FOUND", "")
	if after := sequences(); !maps.Equal(before, after) {
		t.Errorf("while STOPPED the sequences went from %v to %v", before, after)
	}

	d.Delete(id)
	idIsTaken("DELETED")
	d.Restart()
	idIsTaken("DELETED, and the daemon restarted")
	before = sequences()
	servertest.Refused(t, stop(), codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "")
	servertest.Refused(t, resume(), codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "")
	servertest.Refused(t, exec(id, "early-exec"), codes.FailedPrecondition, "SANDBOX_NOT_READY", "")
	if after := sequences(); !maps.Equal(before, after) {
		t.Errorf("while DELETED the sequences went from %v to %v", before, after)
	}
	if err := exec(other, "early-exec"); err != nil {
		t.Errorf("the id of a refused exec is not free: %v", err)
	}
	d.ExecEnd(other, "early-exec")
}

// TestAnchors: the newest sequence is the last from which a subscription continues.
func TestAnchors(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	id := d.Create(&agboxv1.CreateSpec{}) // three events
	first := func(from uint64) (*agboxv1.SandboxEvent, error) {
		stream, err := d.SubscribeSandboxEvents(t.Context(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: from})
		if err != nil {
			return nil, err
		}
		defer stream.Close()
		return stream.Recv()
	}
	for from := range uint64(3) {
		if event, err := first(from); err != nil || event.Sequence != from+1 {
			t.Errorf("after %d comes %v, %v", from, event, err)
		}
	}
	for _, from := range []uint64{4, 1<<64 - 1} {
		_, err := first(from)
		servertest.Refused(t, err, codes.OutOfRange, "SANDBOX_EVENT_SEQUENCE_EXPIRED", "")
		concerns(t, err, map[string]string{"sandbox_id": id, "oldest_sequence": "1"})
	}
}
