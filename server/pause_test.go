package server_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

func awaitKind(d *servertest.Daemon, id string, from uint64, kind agboxv1.EventType) *agboxv1.SandboxEvent {
	events := d.AwaitMatch(id, from, func(e *agboxv1.SandboxEvent) bool { return e.EventType == kind })
	return events[len(events)-1]
}

func pause(t *testing.T, d *servertest.Daemon, id string) *agboxv1.SandboxEvent {
	t.Helper()
	got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.PauseSandbox(t.Context(), &agboxv1.PauseSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	return awaitKind(d, id, got.Sandbox.LastEventSequence, agboxv1.EventType_SANDBOX_PAUSED)
}

// TestPause: everything stands still, the services too, and goes on where it was.
func TestPause(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{web(d, "db")}})
	counter := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c",
		"i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo $i; sleep 0.05; done"}})
	paused := pause(t, d, id)
	if found, err := d.Engine.ContainerInspect(t.Context(), serviceContainers(t, d, id)["db"].ID); err != nil || !found.State.Paused {
		t.Errorf("the service is %+v, %v", found.State, err)
	}
	_, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}})
	refused(t, err, codes.FailedPrecondition, "SANDBOX_NOT_READY", "", "PAUSED", "unpause it first")
	d.Restart()
	got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil || got.Sandbox.State != agboxv1.SandboxState_SANDBOX_STATE_PAUSED {
		t.Errorf("after a restart of the daemon it is %v, %v", got, err)
	}
	if _, err := d.UnpauseSandbox(t.Context(), &agboxv1.UnpauseSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	awaitKind(d, id, paused.Sequence, agboxv1.EventType_SANDBOX_UNPAUSED)
	if end := d.ExecEnd(id, counter.ExecId); end.ExitCode != 0 {
		t.Errorf("the counter ended with %v", end)
	}
	if text := d.Read(counter.StdoutLogPath); text != numbers(100) {
		t.Errorf("it has counted %q", text)
	}
	for _, end := range []func() error{
		func() error {
			_, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id})
			return err
		},
	} {
		paused := pause(t, d, id)
		if err := end(); err != nil {
			t.Fatal(err)
		}
		awaitKind(d, id, paused.Sequence, agboxv1.EventType_SANDBOX_STOPPED)
	}
	second := d.Create(&agboxv1.CreateSpec{})
	pause(t, d, second)
	d.Delete(second)
}

func numbers(n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(strconv.Itoa(i+1) + "\n")
	}
	return text.String()
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
	refused(t, err, codes.FailedPrecondition, "SANDBOX_NOT_READY", "", "DRAINING")
	if end := d.ExecEnd(id, running.ExecId); end.ExitCode != 4 {
		t.Errorf("the exec ended with %v", end)
	}
	d.ExecEnd(id, hold.ExecId)
	if stopped := awaitKind(d, id, 0, agboxv1.EventType_SANDBOX_STOPPED); stopped.GetSandboxPhase().Reason != "drained" {
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
	awaitKind(d, id, 0, agboxv1.EventType_SANDBOX_STOPPED)
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
	refused(t, err, codes.InvalidArgument, "DURATION_NEGATIVE", "max_duration", "is negative")
}

// TestExecTimeout: the exec's own time is over, and its result says so.
func TestExecTimeout(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	exec := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sleep", "100"}, Timeout: durationpb.New(200 * time.Millisecond)})
	end := d.ExecEnd(id, exec.ExecId)
	if end.ExecState != agboxv1.ExecState_EXEC_STATE_FINISHED || end.ExitCode != 143 || !end.Resources.GetTimedOut() {
		t.Errorf("the exec ended as %v", end)
	}
}

// TestSignal: it goes to the command itself, by name or number.
func TestSignal(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	exec := d.Script(id, "true") // and then sleeps
	for _, bad := range []string{"", "NOPE", "0", "65"} {
		_, err := d.SignalExec(t.Context(), &agboxv1.SignalExecRequest{ExecId: exec, Signal: bad})
		refused(t, err, codes.InvalidArgument, "SIGNAL_INVALID", "signal", "is no signal")
	}
	if _, err := d.SignalExec(t.Context(), &agboxv1.SignalExecRequest{ExecId: exec, Signal: "usr1"}); err != nil {
		t.Fatal(err)
	}
	if end := d.ExecEnd(id, exec); end.Signal != 10 || end.ExecState != agboxv1.ExecState_EXEC_STATE_FINISHED {
		t.Errorf("the exec ended as %v", end)
	}
	_, err := d.SignalExec(t.Context(), &agboxv1.SignalExecRequest{ExecId: exec, Signal: "9"})
	refused(t, err, codes.FailedPrecondition, "EXEC_ALREADY_TERMINAL", "", "has ended")
	_, err = d.SignalExec(t.Context(), &agboxv1.SignalExecRequest{ExecId: "nothing", Signal: "9"})
	refused(t, err, codes.NotFound, "EXEC_NOT_FOUND", "", "no exec nothing")
}

// TestMaxOutput: the command goes on, its file does not grow, and the result tells what is missing.
func TestMaxOutput(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	exec := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c", "head -c 100000 /dev/zero; echo over >&2; exit 3"}, MaxOutputBytes: 1000})
	end := d.ExecEnd(id, exec.ExecId)
	used := end.Resources
	if end.ExitCode != 3 || used.GetStdoutBytes() != 1000 || used.GetStderrBytes() != 5 || used.GetOutputDroppedBytes() != 99000 {
		t.Errorf("the exec ended as %v", end)
	}
	if text := d.Read(exec.StdoutLogPath); len(text) != 1000 {
		t.Errorf("its file holds %d bytes", len(text))
	}
	got, err := d.GetExec(t.Context(), &agboxv1.GetExecRequest{ExecId: exec.ExecId})
	if err != nil || got.Exec.Resources.GetMaxRssBytes() == 0 {
		t.Errorf("GetExec says %v, %v", got, err)
	}
}
