package life_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestPause: everything stands still, the services too, and goes on where it was.
func TestPause(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{servertest.Web(d, "db")}})
	counter := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c",
		"i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo $i; sleep 0.05; done"}})
	paused := servertest.Pause(t, d, id)
	if found, err := d.Engine.ContainerInspect(t.Context(), servertest.ServiceContainers(t, d, id)["db"].ID); err != nil || !found.State.Paused {
		t.Errorf("the service is %+v, %v", found.State, err)
	}
	_, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}})
	servertest.Refused(t, err, codes.FailedPrecondition, "SANDBOX_NOT_READY", "", "PAUSED", "unpause it first")
	d.Restart()
	got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil || got.Sandbox.State != agboxv1.SandboxState_SANDBOX_STATE_PAUSED {
		t.Errorf("after a restart of the daemon it is %v, %v", got, err)
	}
	if _, err := d.UnpauseSandbox(t.Context(), &agboxv1.UnpauseSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	servertest.AwaitKind(d, id, paused.Sequence, agboxv1.EventType_SANDBOX_UNPAUSED)
	if end := d.ExecEnd(id, counter.ExecId); end.ExitCode != 0 {
		t.Errorf("the counter ended with %v", end)
	}
	if text := d.Read(counter.StdoutLogPath); text != servertest.Numbers(100) {
		t.Errorf("it has counted %q", text)
	}
	for _, end := range []func() error{
		func() error {
			_, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id})
			return err
		},
	} {
		paused := servertest.Pause(t, d, id)
		if err := end(); err != nil {
			t.Fatal(err)
		}
		servertest.AwaitKind(d, id, paused.Sequence, agboxv1.EventType_SANDBOX_STOPPED)
	}
	second := d.Create(&agboxv1.CreateSpec{})
	servertest.Pause(t, d, second)
	d.Delete(second)
}

// TestDrain: what runs ends as it would, nothing new begins, and the sandbox is STOPPED then.
func TestDrain(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	running := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c", "until [ -e /tmp/end ]; do sleep 0.05; done; exit 4"}})
	hold := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c", "sleep 0.5; touch /tmp/end"}})
	if _, err := d.DrainSandbox(t.Context(), &agboxv1.DrainSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	_, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}})
	servertest.Refused(t, err, codes.FailedPrecondition, "SANDBOX_NOT_READY", "", "DRAINING")
	if end := d.ExecEnd(id, running.ExecId); end.ExitCode != 4 {
		t.Errorf("the exec ended with %v", end)
	}
	d.ExecEnd(id, hold.ExecId)
	if stopped := servertest.AwaitKind(d, id, 0, agboxv1.EventType_SANDBOX_STOPPED); stopped.GetSandboxPhase().Reason != "drained" {
		t.Errorf("STOPPED says %v", stopped)
	}
}

// TestKill: no grace is needed, and a stop with a long one gives way.
func TestKill(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	d.Script(id, "trap '' TERM; sleep 1000 & trap '' TERM")
	deaf := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c", "trap '' TERM; while :; do sleep 1; done"}})
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id, Grace: durationpb.New(10 * time.Minute)}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id, Force: true}); err != nil {
		t.Fatal(err)
	}
	servertest.AwaitKind(d, id, 0, agboxv1.EventType_SANDBOX_STOPPED)
	if end := d.ExecEnd(id, deaf.ExecId); end.ExecState != agboxv1.ExecState_EXEC_STATE_CANCELLED {
		t.Errorf("what did not listen ended as %v", end)
	}
}

// TestExtend: the handle tells the deadlines.
func TestExtend(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{MaxDuration: durationpb.New(time.Hour), IdleTtl: durationpb.New(0)})
	before, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil || before.Sandbox.IdleAt != nil || !before.Sandbox.ExpiresAt.AsTime().Equal(before.Sandbox.CreatedAt.AsTime().Add(time.Hour)) {
		t.Errorf("the sandbox is %v, %v", before, err)
	}
	after, err := d.ExtendSandbox(t.Context(), &agboxv1.ExtendSandboxRequest{SandboxId: id, MaxDuration: durationpb.New(0), IdleTtl: durationpb.New(time.Hour)})
	if err != nil || after.Sandbox.ExpiresAt != nil || after.Sandbox.IdleAt == nil {
		t.Errorf("the sandbox is %v, %v", after, err)
	}
	_, err = d.ExtendSandbox(t.Context(), &agboxv1.ExtendSandboxRequest{SandboxId: id, MaxDuration: durationpb.New(-1)})
	servertest.Refused(t, err, codes.InvalidArgument, "DURATION_NEGATIVE", "max_duration", "is negative")
}
