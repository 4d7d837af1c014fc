package life_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestCreateFailsHalfWay: network and container exist already when the start fails, and neither stays.
func TestCreateFailsHalfWay(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{
		Image: d.Image, Mounts: []*agboxv1.MountSpec{{Source: "/usr", Target: "/bin/busybox/below-a-file"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	id := created.Sandbox.SandboxId
	failed := servertest.FailureOf(t, d, id)
	if failed.ErrorCode != "SANDBOX_CREATE_FAILED" || !strings.Contains(failed.ErrorMessage, "/bin/busybox") {
		t.Errorf("FAILED says %v", failed)
	}
	dockertest.Leftovers(t, d.Engine, id)
	if _, err := os.Lstat(filepath.Join(d.Dir(), "run", id)); !os.IsNotExist(err) {
		t.Errorf("its socket's directory stays: %v", err)
	}
	if got := servertest.Kinds(d.Delete(id)); got != "ACCEPTED PREPARING FAILED DELETE_REQUESTED DELETED" {
		t.Errorf("the log is %s", got)
	}
}

// TestDeleteWhileEntrypointRuns: the container is up, and READY would be next.
func TestDeleteWhileEntrypointRuns(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	const id = "pending-box"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	starts, errs := d.Engine.Events(ctx, events.ListOptions{Filters: filters.NewArgs(
		filters.Arg("event", "start"), filters.Arg("label", dockertest.SandboxLabel+"="+id))})
	if _, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id,
		CreateSpec: &agboxv1.CreateSpec{Image: d.Variant(dockertest.EntrypointStays)}}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-starts:
	case err := <-errs:
		t.Fatal(err)
	}
	if got := servertest.Kinds(d.Delete(id)); got != "ACCEPTED PREPARING DELETE_REQUESTED DELETED" {
		t.Errorf("the log is %s", got)
	}
}

// TestDeleteWhileStopping: the deletion takes over, and the stop that it interrupts is told as nothing else.
func TestDeleteWhileStopping(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	stubborn := d.Script(id, `trap "" TERM`)
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	log := d.Delete(id)
	asked := 0
	for i, e := range log {
		if e.EventType == agboxv1.EventType_SANDBOX_STOP_REQUESTED {
			asked = i
		}
	}
	if got := servertest.Kinds(log[asked:]); got != "STOP_REQUESTED DELETE_REQUESTED EXEC_CANCELLED DELETED" {
		t.Errorf("from the stop on the log is %s", got)
	}
	if end := d.ExecEnd(id, stubborn); end.ExecState != agboxv1.ExecState_EXEC_STATE_CANCELLED {
		t.Errorf("the command ended with %v", end)
	}
}

// TestPrimaryRemovedByHand: gone while it is stopped, the resume says so and makes nothing; gone while it runs, the
// sandbox fails.
func TestPrimaryRemovedByHand(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	byHand := func(id string) {
		t.Helper()
		if err := d.Engine.ContainerRemove(t.Context(), "agbox-primary-"+id, container.RemoveOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	stopped, running := d.Create(&agboxv1.CreateSpec{}), d.Create(&agboxv1.CreateSpec{})
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: stopped}); err != nil {
		t.Fatal(err)
	}
	d.Await(stopped, agboxv1.EventType_SANDBOX_STOPPED)
	byHand(stopped)
	byHand(running)
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: stopped}); err != nil {
		t.Fatal(err)
	}
	if failed := servertest.FailureOf(t, d, stopped); failed.ErrorCode != "SANDBOX_RUNTIME_CORRUPT" || !strings.Contains(failed.ErrorMessage, "agbox-primary-"+stopped) {
		t.Errorf("the resume says %v", failed)
	}
	if failed := servertest.FailureOf(t, d, running); failed.ErrorCode != "CONTAINER_NOT_RUNNING" {
		t.Errorf("the one that ran says %v", failed)
	}
	if _, err := d.Engine.ContainerInspect(t.Context(), "agbox-primary-"+stopped); err == nil {
		t.Error("the container was made again")
	}
	d.Delete(stopped)
	d.Delete(running)
}

// TestPrimaryDiesWhileDaemonIsDown: the next run of the daemon finds out by itself.
func TestPrimaryDiesWhileDaemonIsDown(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	killed, stopped := d.Create(&agboxv1.CreateSpec{}), d.Create(&agboxv1.CreateSpec{})
	exec := d.Script(killed, "")
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: stopped}); err != nil {
		t.Fatal(err)
	}
	d.Await(stopped, agboxv1.EventType_SANDBOX_STOPPED)
	d.Stop()
	name := "agbox-primary-" + killed
	ended, errs := d.Engine.ContainerWait(t.Context(), name, container.WaitConditionNotRunning)
	if err := d.Engine.ContainerKill(t.Context(), name, "KILL"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case err := <-errs:
		t.Fatal(err)
	}
	d.StartAgain()
	if failed := servertest.FailureOf(t, d, killed); failed.ErrorCode != "CONTAINER_NOT_RUNNING" || !strings.Contains(failed.ErrorMessage, "signal 9") {
		t.Errorf("FAILED says %v", failed)
	}
	if end := d.ExecEnd(killed, exec); end.ExecState != agboxv1.ExecState_EXEC_STATE_FAILED {
		t.Errorf("its command ended with %v", end)
	}
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: stopped}); err != nil {
		t.Fatal(err)
	}
	d.AwaitMatch(stopped, 5, func(e *agboxv1.SandboxEvent) bool { return e.EventType == agboxv1.EventType_SANDBOX_READY })
}

// TestOutOfMemory: a person reads that it was the memory.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{Image: d.Variant(dockertest.RootOnly)})
	const limit = 24 << 20
	if _, err := d.Engine.ContainerUpdate(t.Context(), "agbox-primary-"+id, container.UpdateConfig{
		Resources: container.Resources{Memory: limit, MemorySwap: limit}}); err != nil {
		t.Fatal(err)
	}
	// The kernel would choose the program that takes the memory; the sandbox fails only when it is PID 1.
	d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c", "echo 0 > /proc/self/oom_score_adj && echo 1000 > /proc/1/oom_score_adj && exec tail /dev/zero"}})
	failed := servertest.FailureOf(t, d, id)
	if failed.ErrorCode != "SANDBOX_OOM" || !strings.Contains(failed.ErrorMessage, "out of memory") || !strings.Contains(failed.ErrorMessage, "137") {
		t.Errorf("FAILED says %v", failed)
	}
}

// TestIdleStop: on the real clock once, with the reason in both events.
func TestIdleStop(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{IdleTtl: durationpb.New(time.Second)})
	log := d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	for _, e := range log[len(log)-2:] {
		if reason := e.GetSandboxPhase().GetReason(); reason != "idle_ttl" {
			t.Errorf("%v has the reason %q", e.EventType, reason)
		}
	}
	if got := servertest.Kinds(log); got != "ACCEPTED PREPARING READY STOP_REQUESTED STOPPED" {
		t.Errorf("the log is %s", got)
	}
}
