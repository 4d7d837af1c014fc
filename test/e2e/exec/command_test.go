package exec_test

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

func TestExecEnds(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	for name, test := range map[string]struct {
		command      []string
		cwd          string
		state        agboxv1.ExecState
		code, signal int32
		errorCode    string
		timeout      time.Duration
	}{
		"true":           {[]string{"true"}, "", agboxv1.ExecState_EXEC_STATE_FINISHED, 0, 0, "", 0},
		"exit code":      {[]string{"sh", "-c", "exit 42"}, "", agboxv1.ExecState_EXEC_STATE_FINISHED, 42, 0, "", 0},
		"signal":         {[]string{"sh", "-c", "kill -SEGV $$"}, "", agboxv1.ExecState_EXEC_STATE_FINISHED, 139, 11, "", 0},
		"not found":      {[]string{"no-such-command"}, "", agboxv1.ExecState_EXEC_STATE_FAILED, 127, 0, "EXEC_COMMAND_NOT_FOUND", 0},
		"not executable": {[]string{"/etc/passwd"}, "", agboxv1.ExecState_EXEC_STATE_FAILED, 126, 0, "EXEC_COMMAND_NOT_EXECUTABLE", 0},
		"bad cwd":        {[]string{"true"}, "nowhere", agboxv1.ExecState_EXEC_STATE_FAILED, 126, 0, "EXEC_CWD_INVALID", 0},
		"timeout":        {[]string{"sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.01; done"}, "", agboxv1.ExecState_EXEC_STATE_FINISHED, 124, 0, "", 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			created, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: test.command, Cwd: test.cwd, Timeout: durationpb.New(test.timeout)})
			if err != nil {
				t.Fatal(err)
			}
			end := d.ExecEnd(id, created.ExecId)
			if end.ExecState != test.state || end.ExitCode != test.code || end.Signal != test.signal || end.ErrorCode != test.errorCode {
				t.Errorf("the event says %v", end)
			}
			got, err := d.GetExec(t.Context(), &agboxv1.GetExecRequest{ExecId: created.ExecId})
			if err != nil || got.Exec.State != test.state || got.Exec.ExitCode != test.code || got.Exec.Signal != test.signal || got.Exec.ErrorCode != test.errorCode {
				t.Errorf("GetExec says %v, %v", got, err)
			}
		})
	}
}

func TestExecEnvironment(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{Envs: map[string]string{"A": "sandbox", "B": "sandbox"}})
	d.Exec(id, "mkdir", "-p", "/workspace/sub")
	created, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Cwd: "sub",
		Command: []string{"sh", "-c", "echo $A $B $C $HOME $PWD"}, EnvOverrides: map[string]string{"B": "exec", "C": "exec"}})
	if err != nil {
		t.Fatal(err)
	}
	d.ExecEnd(id, created.ExecId)
	if text, err := os.ReadFile(created.StdoutLogPath); string(text) != "sandbox exec exec /home/agbox /workspace/sub\n" {
		t.Errorf("the command sees %q, %v", text, err)
	}
}

// TestCancelLeavesNothing: nor what left the process group, nor the session.
func TestCancelLeavesNothing(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	created, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c", "setsid sleep 300 & sleep 300"}})
	if err != nil {
		t.Fatal(err)
	}
	for processes(t, d, id, "sleep 300") < 2 {
	}
	if _, err := d.CancelExec(t.Context(), &agboxv1.CancelExecRequest{ExecId: created.ExecId}); err != nil {
		t.Fatal(err)
	}
	if end := d.ExecEnd(id, created.ExecId); end.ExecState != agboxv1.ExecState_EXEC_STATE_CANCELLED || end.Signal != 15 {
		t.Errorf("the command ended with %v", end)
	}
	if n := processes(t, d, id, ""); n != 1 {
		t.Errorf("the container still runs %d processes beside its first", n-1)
	}
}

// processes counts those in the sandbox whose line in ps contains text.
func processes(t *testing.T, d *servertest.Daemon, id, text string) int {
	t.Helper()
	top, err := d.Engine.ContainerTop(t.Context(), "agbox-primary-"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range top.Processes {
		if strings.Contains(strings.Join(p, " "), text) {
			n++
		}
	}
	return n
}

// TestOutputIsComplete: to the last byte, at a flat memory of the daemon.
func TestOutputIsComplete(t *testing.T) {
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	created, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id,
		Command: []string{"sh", "-c", "head -c 200000000 /dev/zero; head -c 1000000 /dev/zero >&2"}})
	if err != nil {
		t.Fatal(err)
	}
	end := d.ExecEnd(id, created.ExecId)
	if grown := int64(heap()) - int64(before); grown > 8<<20 {
		t.Errorf("the daemon's heap grew by %d bytes", grown)
	}
	for path, want := range map[string]int64{created.StdoutLogPath: 200_000_000, created.StderrLogPath: 1_000_000} {
		if info, err := os.Stat(path); err != nil || info.Size() != want {
			t.Errorf("%s has %d bytes, %v; want %d", path, info.Size(), err, want)
		}
	}
	if end.ExitCode != 0 {
		t.Errorf("the command ended with %v", end)
	}
	// A program that opens its standard error by name must not lose what was written before.
	if _, _, stderr := d.Exec(id, "sh", "-c", "echo one >&2; echo two > /dev/stderr; echo three >&2"); stderr != "one\ntwo\nthree\n" {
		t.Errorf("stderr is %q", stderr)
	}
}

// TestExecsSurviveRestarts: one that runs on, and one that ends while there is no daemon.
func TestExecsSurviveRestarts(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	start := func(script string) string {
		t.Helper()
		created, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c", script}})
		if err != nil {
			t.Fatal(err)
		}
		return created.ExecId
	}
	running := start("echo begun; until [ -e /workspace/go ]; do sleep 0.05; done; echo done; exit 7")
	ending := start("until [ -e /workspace/down ]; do sleep 0.05; done; exit 9")
	waiting := start("touch /workspace/down; exit 1")
	d.ExecEnd(id, waiting)
	d.Stop()
	for processes(t, d, id, "/workspace/down") > 0 {
	}
	d.Restart()
	if end := d.ExecEnd(id, ending); end.ExitCode != 9 || end.ExecState != agboxv1.ExecState_EXEC_STATE_FINISHED {
		t.Errorf("the command that ended meanwhile is %v", end)
	}
	got, err := d.GetExec(t.Context(), &agboxv1.GetExecRequest{ExecId: running})
	if err != nil || got.Exec.State != agboxv1.ExecState_EXEC_STATE_RUNNING {
		t.Errorf("the command that runs on is %v, %v", got, err)
	}
	d.Exec(id, "touch", "/workspace/go")
	if end := d.ExecEnd(id, running); end.ExitCode != 7 {
		t.Errorf("the command that ran on ended with %v", end)
	}
	if text, err := os.ReadFile(got.Exec.StdoutLogPath); string(text) != "begun\ndone\n" {
		t.Errorf("its output is %q, %v", text, err)
	}
}

// TestRepeatedRequest: with its mark, a create and an exec may be sent again.
func TestRepeatedRequest(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "agbox-request-id", "mark-1")
	create := func(ctx context.Context) (string, error) {
		created, err := d.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: "repeated", CreateSpec: &agboxv1.CreateSpec{Image: d.Image}})
		return created.GetSandbox().GetSandboxId(), err
	}
	for range 3 {
		if id, err := create(ctx); err != nil || id != "repeated" {
			t.Fatalf("create: %q, %v", id, err)
		}
	}
	if _, err := create(t.Context()); err == nil {
		t.Error("a create without the mark was accepted again")
	}
	d.Await("repeated", agboxv1.EventType_SANDBOX_READY)
	for range 3 {
		created, err := d.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: "repeated", ExecId: "exec-1", Command: []string{"sh", "-c", "echo ran >> /workspace/runs"}})
		if err != nil || created.ExecId != "exec-1" {
			t.Fatalf("exec: %v, %v", created, err)
		}
	}
	d.ExecEnd("repeated", "exec-1")
	if _, stdout, _ := d.Exec("repeated", "cat", "/workspace/runs"); stdout != "ran\n" {
		t.Errorf("the command ran %q", stdout)
	}
}
