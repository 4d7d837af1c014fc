package life_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestLazy: a hundred first uses at once make one sandbox, and all are served.
func TestLazy(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := servertest.Lazily(t, d, &agboxv1.CreateSpec{Image: d.Image})
	if list := servertest.ContainersOf(t, d, id); len(list) != 0 {
		t.Errorf("before its first use it has %v", list)
	}
	var uses sync.WaitGroup
	for i := range 100 {
		uses.Go(func() {
			_, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, ExecId: fmt.Sprintf("exec-%d", i), Command: []string{"true"}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	uses.Wait()
	for i := range 100 {
		if end := d.ExecEnd(id, fmt.Sprintf("exec-%d", i)); end.ExitCode != 0 || end.ExecState != agboxv1.ExecState_EXEC_STATE_FINISHED {
			t.Errorf("exec %d ended with %v", i, end)
		}
	}
	if list := servertest.ContainersOf(t, d, id); len(list) != 1 {
		t.Errorf("it has %d containers", len(list))
	}
	ready := 0
	for _, event := range d.Delete(id) {
		if event.EventType == agboxv1.EventType_SANDBOX_READY {
			ready++
		}
	}
	if ready != 1 {
		t.Errorf("it was made %d times", ready)
	}
}

// TestLazyNeverUsed: it is deleted, or started, on request, also after a restart of the daemon.
func TestLazyNeverUsed(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	never, resumed := servertest.Lazily(t, d, &agboxv1.CreateSpec{Image: d.Image}), servertest.Lazily(t, d, &agboxv1.CreateSpec{Image: d.Image})
	_, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: never})
	servertest.Refused(t, err, codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "", "DORMANT")
	d.Restart()
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: resumed}); err != nil {
		t.Fatal(err)
	}
	d.Await(resumed, agboxv1.EventType_SANDBOX_READY)
	var kinds []string
	for _, event := range d.Delete(never) {
		kinds = append(kinds, strings.TrimPrefix(event.EventType.String(), "SANDBOX_"))
	}
	if got := strings.Join(kinds, " "); got != "ACCEPTED DELETE_REQUESTED DELETED" {
		t.Errorf("one that was never used went through %s", got)
	}
}

// TestLazyFails: the use hears why, and the next one tries again.
func TestLazyFails(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := servertest.Lazily(t, d, &agboxv1.CreateSpec{Image: "agbox.invalid/none:1", PullPolicy: "never"})
	for range 2 {
		_, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}})
		servertest.Refused(t, err, codes.FailedPrecondition, "SANDBOX_NOT_READY", "", "agbox.invalid/none:1", "the next use tries again")
	}
	got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil || got.Sandbox.State != servertest.Dormant || got.Sandbox.ErrorCode == "" || !strings.Contains(got.Sandbox.ErrorMessage, "agbox.invalid") {
		t.Errorf("it is %v, %v", got, err)
	}
	tries := 0
	for _, event := range d.Delete(id) {
		if event.EventType == agboxv1.EventType_SANDBOX_DORMANT {
			tries++
		}
	}
	if tries != 2 {
		t.Errorf("it was tried %d times", tries)
	}
}

// TestRestartPolicy: a command that fails is started again in the same sandbox, until it has failed too often.
func TestRestartPolicy(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{
		Image: d.Image, Command: []string{"sh", "-c", "echo again >>/workspace/lives; exit 3"},
		RestartPolicy: &agboxv1.RestartPolicy{Mode: "on-failure", MaxRestarts: 2, Backoff: &durationpb.Duration{Nanos: 1e8}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	id := created.Sandbox.SandboxId
	events := d.Await(id, agboxv1.EventType_SANDBOX_FAILED)
	var restarts []uint32
	for _, event := range events {
		if event.EventType == agboxv1.EventType_SANDBOX_RESTARTING {
			restarts = append(restarts, event.GetSandboxPhase().Restarts)
			if event.GetSandboxPhase().ErrorCode != "SANDBOX_CRASHED" || event.GetSandboxPhase().RestartAt == nil {
				t.Errorf("a restart is told as %v", event)
			}
		}
	}
	last := events[len(events)-1].GetSandboxPhase()
	if fmt.Sprint(restarts) != "[1 2]" || last.ErrorCode != "SANDBOX_CRASHED" || !strings.Contains(last.ErrorMessage, "after 2 restarts in a row") {
		t.Errorf("restarts %v, and then %v", restarts, last)
	}
}

// TestRestartAfterKill: a primary that was killed comes back with its files.
func TestRestartAfterKill(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{RestartPolicy: &agboxv1.RestartPolicy{Mode: "on-failure", Backoff: &durationpb.Duration{Nanos: 1e8}}})
	if end, _, stderr := d.Exec(id, "sh", "-c", "echo kept >/workspace/file"); end.ExitCode != 0 {
		t.Fatalf("%v, %s", end, stderr)
	}
	if err := d.Engine.ContainerKill(t.Context(), servertest.ContainersOf(t, d, id)[0].ID, "KILL"); err != nil {
		t.Fatal(err)
	}
	restarting := servertest.AwaitKind(d, id, 0, agboxv1.EventType_SANDBOX_RESTARTING)
	servertest.AwaitKind(d, id, restarting.Sequence, agboxv1.EventType_SANDBOX_READY)
	if _, stdout, _ := d.Exec(id, "cat", "/workspace/file"); stdout != "kept\n" {
		t.Errorf("after the restart the file holds %q", stdout)
	}
	got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil || got.Sandbox.Restarts != 1 {
		t.Errorf("it is %v, %v", got, err)
	}
}

// TestOwnCommandOutOfMemory: the end of the own command for want of memory is told as that.
func TestOwnCommandOutOfMemory(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{
		Image: d.Image, MemoryLimit: 32 << 20, Command: []string{"sh", "-c", "x=x; while :; do x=$x$x; done"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	events := d.Await(created.Sandbox.SandboxId, agboxv1.EventType_SANDBOX_FAILED)
	if last := events[len(events)-1].GetSandboxPhase(); last.ErrorCode != "SANDBOX_OOM" || !strings.Contains(last.ErrorMessage, "out of memory") {
		t.Errorf("it failed with %v", last)
	}
}
