package server_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestRefusals: what does not fit the state of things. What is bad by itself has tables of its own.
func TestRefusals(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	ctx := t.Context()
	id := d.Create(&agboxv1.CreateSpec{})
	exec := func(sandbox, exec string) error {
		_, err := d.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: sandbox, ExecId: exec, Command: []string{"true"}})
		return err
	}
	create := func() error {
		_, err := d.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: d.Image}})
		return err
	}
	taken := "sandbox id " + id + " was used before"
	if err := exec(id, "exec-1"); err != nil {
		t.Fatal(err)
	}
	d.ExecEnd(id, "exec-1")

	_, err := d.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: "nobody"})
	servertest.Refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "", "there is no sandbox nobody: it was never created, or its history was removed")
	_, err = d.StopSandbox(ctx, &agboxv1.StopSandboxRequest{SandboxId: "nobody"})
	servertest.Refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "", "there is no sandbox nobody: it was never created")
	servertest.Refused(t, exec("nobody", ""), codes.NotFound, "SANDBOX_NOT_FOUND", "", "there is no sandbox nobody: it was never created")
	_, err = d.GetExec(ctx, &agboxv1.GetExecRequest{ExecId: "nothing"})
	servertest.Refused(t, err, codes.NotFound, "EXEC_NOT_FOUND", "", "there is no exec nothing: it was never started, or its history was removed")
	_, err = d.CancelExec(ctx, &agboxv1.CancelExecRequest{ExecId: "nothing"})
	servertest.Refused(t, err, codes.NotFound, "EXEC_NOT_FOUND", "", "there is no exec nothing: it was never started")
	_, err = d.CancelExec(ctx, &agboxv1.CancelExecRequest{ExecId: "exec-1"})
	servertest.Refused(t, err, codes.FailedPrecondition, "EXEC_ALREADY_TERMINAL", "", "exec exec-1 has ended: GetExec tells how")
	servertest.Refused(t, exec(id, "exec-1"), codes.AlreadyExists, "EXEC_ID_ALREADY_EXISTS", "", "exec id exec-1 was used before")
	servertest.Refused(t, create(), codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS", "", taken)
	_, err = d.ResumeSandbox(ctx, &agboxv1.ResumeSandboxRequest{SandboxId: id})
	servertest.Refused(t, err, codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "", "cannot resume sandbox "+id+", which is READY: only a STOPPED sandbox can be resumed")
	stream, err := d.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: 99})
	if err == nil {
		_, err = stream.Recv()
		stream.Close()
	}
	servertest.Refused(t, err, codes.OutOfRange, "SANDBOX_EVENT_SEQUENCE_EXPIRED", "", "sequence 99 is not one to continue from: sandbox "+id+" keeps 1 to 5")

	d.Restart()
	servertest.Refused(t, create(), codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS", "", taken)
	if _, err := d.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_DELETED)
	servertest.Refused(t, create(), codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS", "", taken)
	servertest.Refused(t, exec(id, "exec-3"), codes.FailedPrecondition, "SANDBOX_NOT_READY", "", "sandbox "+id+" is DELETED: commands run only while it is READY")
	_, err = d.StopSandbox(ctx, &agboxv1.StopSandboxRequest{SandboxId: id})
	servertest.Refused(t, err, codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "", "cannot stop sandbox "+id+", which is DELETED: only a sandbox that is READY, PAUSED or DRAINING can be stopped")
	if _, err := d.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id}); err != nil {
		t.Errorf("a second delete: %v", err)
	}
}
