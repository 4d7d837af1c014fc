package snapshots_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/container"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

func fork(t *testing.T, d *servertest.Daemon, req *agboxv1.ForkSandboxRequest) string {
	t.Helper()
	forked, err := d.ForkSandbox(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return forked.Sandbox.SandboxId
}

// TestFork: of a sandbox in each state that has files, which stays in it, and with the fork goes what it was made from.
func TestFork(t *testing.T) {
	t.Parallel()
	d := startSnapshots(t)
	id := d.Create(&agboxv1.CreateSpec{Envs: map[string]string{"COLOUR": "red"}})
	check := func(forkID, want string) {
		t.Helper()
		d.Await(forkID, agboxv1.EventType_SANDBOX_READY)
		if text := servertest.Sh(t, d, forkID, "cat /workspace/file; echo $COLOUR"); text != want {
			t.Errorf("the fork has %q, want %q", text, want)
		}
		images := labelledImages(t, d.Engine, snapshotFork, forkID)
		list, err := d.ListSnapshots(t.Context(), &agboxv1.ListSnapshotsRequest{})
		if err != nil || len(images) != 1 || len(list.Snapshots) != 1 || !list.Snapshots[0].Fork {
			t.Fatalf("it is made from %v; the list is %v, %v", images, list, err)
		}
		_, err = d.DeleteSnapshot(t.Context(), &agboxv1.DeleteSnapshotRequest{SnapshotId: list.Snapshots[0].SnapshotId})
		servertest.Refused(t, err, codes.FailedPrecondition, "SNAPSHOT_IN_USE", "", "belongs to sandbox "+forkID)
		_, err = d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SnapshotId: list.Snapshots[0].SnapshotId})
		servertest.Refused(t, err, codes.FailedPrecondition, "SNAPSHOT_IN_USE", "", "belongs to sandbox "+forkID)
		d.Delete(forkID)
		if images := labelledImages(t, d.Engine, snapshotFork, forkID); len(images) > 0 {
			t.Errorf("a deleted fork leaves %v", images)
		}
	}
	state := func(want agboxv1.SandboxState) {
		t.Helper()
		if got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id}); err != nil || got.Sandbox.State != want {
			t.Errorf("after the fork the sandbox is %v, %v", got, err)
		}
	}
	servertest.Sh(t, d, id, "echo ready > /workspace/file")
	counter := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c",
		"i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo $i; sleep 0.05; done"}})
	check(fork(t, d, &agboxv1.ForkSandboxRequest{SandboxId: id, ForkId: "fork-of-ready-" + filepath.Base(d.Dir())}), "ready\nred\n")
	state(servertest.Ready)
	if end := d.ExecEnd(id, counter.ExecId); end.ExitCode != 0 || d.Read(counter.StdoutLogPath) != servertest.Numbers(30) {
		t.Errorf("what ran meanwhile ended with %v and %q", end, d.Read(counter.StdoutLogPath))
	}

	servertest.Sh(t, d, id, "echo paused > /workspace/file")
	paused := servertest.Pause(t, d, id)
	check(fork(t, d, &agboxv1.ForkSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Envs: map[string]string{"COLOUR": "blue"}}}), "paused\nblue\n")
	state(agboxv1.SandboxState_SANDBOX_STATE_PAUSED)
	if found, err := d.Engine.ContainerInspect(t.Context(), "agbox-primary-"+id); err != nil || !found.State.Paused {
		t.Errorf("the engine says %+v, %v", found.State, err)
	}
	if _, err := d.UnpauseSandbox(t.Context(), &agboxv1.UnpauseSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	servertest.AwaitKind(d, id, paused.Sequence, agboxv1.EventType_SANDBOX_UNPAUSED)

	servertest.Sh(t, d, id, "echo stopped > /workspace/file")
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	at := servertest.AwaitKind(d, id, 0, agboxv1.EventType_SANDBOX_STOPPED)
	check(fork(t, d, &agboxv1.ForkSandboxRequest{SandboxId: id}), "stopped\nred\n")
	state(servertest.Stopped)

	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	servertest.AwaitKind(d, id, at.Sequence, agboxv1.EventType_SANDBOX_READY)
	if err := d.Engine.ContainerKill(t.Context(), "agbox-primary-"+id, "KILL"); err != nil {
		t.Fatal(err)
	}
	servertest.AwaitKind(d, id, 0, agboxv1.EventType_SANDBOX_FAILED)
	check(fork(t, d, &agboxv1.ForkSandboxRequest{SandboxId: id}), "stopped\nred\n")
	state(servertest.Failed)

	if err := d.Engine.ContainerRemove(t.Context(), "agbox-primary-"+id, container.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	_, err := d.ForkSandbox(t.Context(), &agboxv1.ForkSandboxRequest{SandboxId: id})
	servertest.Refused(t, err, codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "", "FAILED: the primary container is gone")
}

// TestForkThatFails keeps what it was made from until it is deleted, and one that is not accepted leaves nothing.
func TestForkThatFails(t *testing.T) {
	t.Parallel()
	d := startSnapshots(t)
	instance := filepath.Base(d.Dir())
	id := d.Create(&agboxv1.CreateSpec{})
	forkID := fork(t, d, &agboxv1.ForkSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Command: []string{"/no/such/program"}}})
	servertest.AwaitKind(d, forkID, 0, agboxv1.EventType_SANDBOX_FAILED)
	if images := labelledImages(t, d.Engine, snapshotInstance, instance); len(images) != 1 {
		t.Errorf("a fork that failed has %v", images)
	}
	_, err := d.ForkSandbox(t.Context(), &agboxv1.ForkSandboxRequest{SandboxId: id, ForkId: forkID})
	servertest.Refused(t, err, codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS", "", forkID)
	if images := labelledImages(t, d.Engine, snapshotInstance, instance); len(images) != 1 {
		t.Errorf("after another one with its id it has %v", images)
	}
	d.Delete(forkID)

	foreign := "agbox-primary-conflict-" + instance
	made, err := d.Engine.ContainerCreate(t.Context(), &container.Config{Image: d.Image, Cmd: []string{"true"}}, nil, nil, nil, foreign)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Engine.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true})
	_, err = d.ForkSandbox(t.Context(), &agboxv1.ForkSandboxRequest{SandboxId: id, ForkId: strings.TrimPrefix(foreign, "agbox-primary-")})
	servertest.Refused(t, err, codes.AlreadyExists, "SANDBOX_CONFLICT", "", foreign)
	if images := labelledImages(t, d.Engine, snapshotInstance, instance); len(images) != 0 {
		t.Errorf("a fork that was refused leaves %v", images)
	}
}

// TestForksAtOnce: five of one sandbox, which take their turns and are all whole; and of five snapshots with one id one
// is made.
func TestForksAtOnce(t *testing.T) {
	t.Parallel()
	d := startSnapshots(t)
	id := d.Create(&agboxv1.CreateSpec{})
	servertest.Sh(t, d, id, "echo same > /workspace/file")
	forks := make([]string, 5)
	var group sync.WaitGroup
	for i := range forks {
		group.Go(func() {
			forked, err := d.ForkSandbox(t.Context(), &agboxv1.ForkSandboxRequest{SandboxId: id})
			if err != nil {
				t.Error(err)
				return
			}
			forks[i] = forked.Sandbox.SandboxId
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	for _, forkID := range forks {
		d.Await(forkID, agboxv1.EventType_SANDBOX_READY)
		if text := servertest.Sh(t, d, forkID, "cat /workspace/file"); text != "same\n" {
			t.Errorf("fork %s has %q", forkID, text)
		}
	}

	results := make([]error, 5)
	one := "one-id-" + filepath.Base(d.Dir())
	for i := range results {
		group.Go(func() {
			_, results[i] = d.SnapshotSandbox(t.Context(), &agboxv1.SnapshotSandboxRequest{SandboxId: id, SnapshotId: one})
		})
	}
	group.Wait()
	won := 0
	for _, err := range results {
		if err == nil {
			won++
		} else {
			servertest.Refused(t, err, codes.AlreadyExists, "SNAPSHOT_ID_TAKEN", "", one, id)
		}
	}
	if images := labelledImages(t, d.Engine, snapshotLabel, one); won != 1 || len(images) != 1 {
		t.Errorf("%d of five snapshots with one id were made: %v", won, images)
	}
}
