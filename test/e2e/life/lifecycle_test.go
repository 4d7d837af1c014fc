package life_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/network"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestStop: the way to STOPPED never leads over FAILED, and a second stop on the way is refused.
func TestStop(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	stubborn, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"}})
	if err != nil {
		t.Fatal(err)
	}
	d.Exec(id, "sh", "-c", "until grep -q up /var/log/agents-sandbox/"+stubborn.ExecId+".stdout.log; do :; done")
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	_, err = d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id})
	servertest.Refused(t, err, codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "")
	_, err = d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}})
	servertest.Refused(t, err, codes.FailedPrecondition, "SANDBOX_NOT_READY", "")
	events := d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	if got := servertest.Kinds(events[len(events)-3:]); got != "STOP_REQUESTED EXEC_CANCELLED STOPPED" {
		t.Errorf("the stop tells %s", got)
	}
	if end := d.ExecEnd(id, stubborn.ExecId); end.Signal != 9 || end.ExitCode != 137 {
		t.Errorf("what ignores TERM ends with %v", end)
	}
}

// TestDeleteWhilePending: what is being made when the delete comes neither comes back nor stays.
func TestDeleteWhilePending(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	stays := dockertest.TinyImage(t, d.Engine, dockertest.EntrypointStays)
	for _, await := range []agboxv1.EventType{agboxv1.EventType_SANDBOX_ACCEPTED, agboxv1.EventType_SANDBOX_PREPARING} {
		created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: stays}})
		if err != nil {
			t.Fatal(err)
		}
		id := created.Sandbox.SandboxId
		d.Await(id, await)
		if _, err := d.DeleteSandbox(t.Context(), &agboxv1.DeleteSandboxRequest{SandboxId: id}); err != nil {
			t.Fatal(err)
		}
		events := d.Await(id, agboxv1.EventType_SANDBOX_DELETED)
		if got := servertest.Kinds(events); !strings.HasSuffix(got, "DELETE_REQUESTED DELETED") || strings.Contains(got, "READY") {
			t.Errorf("the log is %s", got)
		}
		dockertest.Leftovers(t, d.Engine, id)
	}
}

// TestSimilarIDs: two ids that differ only in - and _ never touch each other's objects.
func TestSimilarIDs(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	ids := []string{"same-name_x", "same_name-x"}
	for _, id := range ids {
		if _, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: d.Image}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		d.Await(id, agboxv1.EventType_SANDBOX_READY)
		d.Exec(id, "sh", "-c", "echo "+id+" > /workspace/name")
	}
	if _, err := d.DeleteSandbox(t.Context(), &agboxv1.DeleteSandboxRequest{SandboxId: ids[0]}); err != nil {
		t.Fatal(err)
	}
	d.Await(ids[0], agboxv1.EventType_SANDBOX_DELETED)
	dockertest.Leftovers(t, d.Engine, ids[0])
	if _, stdout, _ := d.Exec(ids[1], "cat", "/workspace/name"); stdout != ids[1]+"\n" {
		t.Errorf("the other sandbox holds %q", stdout)
	}
}

// TestPrimaryIsKilled: the sandbox is FAILED with the cause, its command has an end, and it can be deleted.
func TestPrimaryIsKilled(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	exec, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sleep", "100"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Engine.ContainerKill(t.Context(), "agbox-primary-"+id, "KILL"); err != nil {
		t.Fatal(err)
	}
	events := d.Await(id, agboxv1.EventType_SANDBOX_FAILED)
	failed := events[len(events)-1].GetSandboxPhase()
	if failed.ErrorCode != "CONTAINER_NOT_RUNNING" || !strings.Contains(failed.ErrorMessage, "137") || !strings.Contains(failed.ErrorMessage, "killed") {
		t.Errorf("FAILED says %v", failed)
	}
	if end := d.ExecEnd(id, exec.ExecId); end.ExecState != agboxv1.ExecState_EXEC_STATE_FAILED || end.ErrorCode != "EXEC_RESULT_LOST" {
		t.Errorf("the command ended with %v", end)
	}
	got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil || got.Sandbox.ErrorCode != failed.ErrorCode || got.Sandbox.ErrorMessage != failed.ErrorMessage {
		t.Errorf("the handle says %v, %v", got, err)
	}
}

func TestMissingImage(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "agbox-test/none:here"}})
	if err != nil {
		t.Fatal(err)
	}
	events := d.Await(created.Sandbox.SandboxId, agboxv1.EventType_SANDBOX_FAILED)
	failed := events[len(events)-1].GetSandboxPhase()
	if failed.ErrorCode != "IMAGE_REGISTRY_UNREACHABLE" || !strings.Contains(failed.ErrorMessage, "agbox-test/none:here") {
		t.Errorf("FAILED says %v", failed)
	}
	dockertest.Leftovers(t, d.Engine, created.Sandbox.SandboxId)
}

// TestResumeOfABrokenSandbox: a missing part is said, and not made again.
func TestResumeOfABrokenSandbox(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	ctx := context.Background()
	if err := d.Engine.NetworkDisconnect(ctx, "agbox-net-"+id, "agbox-primary-"+id, true); err != nil {
		t.Log(err)
	}
	if err := d.Engine.NetworkRemove(ctx, "agbox-net-"+id); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	events := d.Await(id, agboxv1.EventType_SANDBOX_FAILED)
	failed := events[len(events)-1].GetSandboxPhase()
	if failed.ErrorCode != "SANDBOX_RUNTIME_CORRUPT" || !strings.Contains(failed.ErrorMessage, "agbox-net-"+id) {
		t.Errorf("FAILED says %v", failed)
	}
	if _, err := d.Engine.NetworkInspect(ctx, "agbox-net-"+id, network.InspectOptions{}); err == nil {
		t.Error("the network was made again")
	}
}

func TestEntrypoints(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	prepared := d.Create(&agboxv1.CreateSpec{Image: dockertest.TinyImage(t, d.Engine, dockertest.EntrypointPrepares)})
	_, stdout, _ := d.Exec(prepared, "sh", "-c", "id -un; cat /prepared")
	if lines := strings.Split(stdout, "\n"); lines[0] != "agbox" || !strings.HasPrefix(lines[1], "0 /.agbox/init handover") {
		t.Errorf("after an entrypoint that prepares the user: %q", stdout)
	}
	exited := d.Create(&agboxv1.CreateSpec{Image: dockertest.TinyImage(t, d.Engine, dockertest.EntrypointExits)})
	if end, _, _ := d.Exec(exited, "true"); end.ExitCode != 0 {
		t.Errorf("after an entrypoint that ends by itself: %v", end)
	}
}

func TestUsers(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	for variant, want := range map[dockertest.Variant]string{dockertest.Busybox: "1000", dockertest.RootOnly: "0", dockertest.ImageUser: "1234"} {
		id := d.Create(&agboxv1.CreateSpec{Image: dockertest.TinyImage(t, d.Engine, variant)})
		end, stdout, stderr := d.Exec(id, "sh", "-c", `id -u; pwd; touch /workspace/mine && echo "$HOST_UID:$HOST_GID"`)
		if lines := strings.Fields(stdout); end.ExitCode != 0 || !slices.Equal(lines, []string{want, "/workspace", "0:0"}) {
			t.Errorf("in %s: %v %q %q", variant, end, stdout, stderr)
		}
	}
	id := d.Create(&agboxv1.CreateSpec{Image: dockertest.TinyImage(t, d.Engine, dockertest.NoShell)})
	if end, stdout, _ := d.Exec(id, "probe", "id"); end.ExitCode != 0 || strings.TrimSpace(stdout) == "" {
		t.Errorf("in an image without a shell: %v %q", end, stdout)
	}
}
