package exec_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

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
		servertest.Refused(t, err, codes.InvalidArgument, "SIGNAL_INVALID", "signal", "is no signal")
	}
	if _, err := d.SignalExec(t.Context(), &agboxv1.SignalExecRequest{ExecId: exec, Signal: "usr1"}); err != nil {
		t.Fatal(err)
	}
	if end := d.ExecEnd(id, exec); end.Signal != 10 || end.ExecState != agboxv1.ExecState_EXEC_STATE_FINISHED {
		t.Errorf("the exec ended as %v", end)
	}
	_, err := d.SignalExec(t.Context(), &agboxv1.SignalExecRequest{ExecId: exec, Signal: "9"})
	servertest.Refused(t, err, codes.FailedPrecondition, "EXEC_ALREADY_TERMINAL", "", "has ended")
	_, err = d.SignalExec(t.Context(), &agboxv1.SignalExecRequest{ExecId: "nothing", Signal: "9"})
	servertest.Refused(t, err, codes.NotFound, "EXEC_NOT_FOUND", "", "no exec nothing")
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
