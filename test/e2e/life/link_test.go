package life_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
	"github.com/agbox-dev/agbox/test/servertest"
)

// impatient has a link count as lost soon.
func impatient(c *dockerrt.Config) { c.LinkPatience = 2 * time.Second }

// lostFor fails the test unless the sandbox is FAILED with the code and text, and its exec with it, without having run twice.
func lostFor(t *testing.T, d *servertest.Daemon, id string, begun, code, text string) {
	t.Helper()
	if failed := servertest.FailureOf(t, d, id); failed.ErrorCode != code || !strings.Contains(failed.ErrorMessage, text) {
		t.Errorf("sandbox %s failed with %v", id, failed)
	}
	if end := d.ExecEnd(id, begun); end.ExecState != agboxv1.ExecState_EXEC_STATE_CANCELLED && end.ErrorCode != "EXEC_RESULT_LOST" {
		t.Errorf("its command ended with %v", end)
	}
	if said := d.Read(filepath.Join(d.Dir(), "exec-logs", id, begun+".stdout.log")); said != "begun\n" {
		t.Errorf("its command says %q", said)
	}
}

// TestContainerStartedAgain: what somebody restarts behind the daemon's back is another life, in which nothing is run again,
// whether the daemon looks, or comes later.
func TestContainerStartedAgain(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, impatient)
	for _, away := range []bool{false, true} {
		id := d.Create(&agboxv1.CreateSpec{})
		begun := d.Script(id, "echo begun")
		if away {
			d.Stop()
		}
		now := 0
		if err := d.Engine.ContainerRestart(t.Context(), "agbox-primary-"+id, container.StopOptions{Timeout: &now}); err != nil {
			t.Fatal(err)
		}
		if away {
			d.StartAgain()
		}
		lostFor(t, d, id, begun, "CONTAINER_NOT_RUNNING", "")
	}
}

// TestRunDirectoryDeleted: where agbox-init cannot come back to, it is missed, and the sandbox is what it is then; a
// sandbox whose container is paused is not expected to answer.
func TestRunDirectoryDeleted(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, impatient)
	id, frozen := d.Create(&agboxv1.CreateSpec{}), d.Create(&agboxv1.CreateSpec{})
	begun, waits := d.Script(id, "echo begun"), d.Script(frozen, "")
	if err := d.Engine.ContainerPause(t.Context(), "agbox-primary-"+frozen); err != nil {
		t.Fatal(err)
	}
	d.Stop()
	if err := os.RemoveAll(filepath.Join(d.Dir(), "run", id)); err != nil {
		t.Fatal(err)
	}
	d.StartAgain()
	lostFor(t, d, id, begun, "LINK_LOST", "agbox-init")
	if got := servertest.Kinds(d.Await(id, agboxv1.EventType_SANDBOX_FAILED)); !strings.HasSuffix(got, " LINK_LOST EXEC_CANCELLED FAILED") {
		t.Errorf("the log is %s", got)
	}
	d.AwaitMatch(frozen, 0, func(e *agboxv1.SandboxEvent) bool { return e.EventType == agboxv1.EventType_SANDBOX_LINK_LOST })
	if err := d.Engine.ContainerUnpause(t.Context(), "agbox-primary-"+frozen); err != nil {
		t.Fatal(err)
	}
	servertest.Works(t, d, frozen)
	if _, err := d.CancelExec(t.Context(), &agboxv1.CancelExecRequest{ExecId: waits}); err != nil {
		t.Fatal(err)
	}
	if end := d.ExecEnd(frozen, waits); end.ExecState != agboxv1.ExecState_EXEC_STATE_CANCELLED {
		t.Errorf("what went on after the pause ended with %v", end)
	}
}

// TestRenamedAndDisconnected: whatever a container is called it is the sandbox's; one that was taken off its network is not
// READY, be it noticed at once or later.
func TestRenamedAndDisconnected(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id, other := d.Create(&agboxv1.CreateSpec{}), d.Create(&agboxv1.CreateSpec{})
	if err := d.Engine.ContainerRename(t.Context(), "agbox-primary-"+id, "somebody-elses-idea-"+id); err != nil {
		t.Fatal(err)
	}
	d.Restart()
	servertest.Works(t, d, id)
	for _, step := range []struct {
		ask  func() error
		done agboxv1.EventType
	}{
		{func() error {
			_, err := d.PauseSandbox(t.Context(), &agboxv1.PauseSandboxRequest{SandboxId: id})
			return err
		}, agboxv1.EventType_SANDBOX_PAUSED},
		{func() error {
			_, err := d.UnpauseSandbox(t.Context(), &agboxv1.UnpauseSandboxRequest{SandboxId: id})
			return err
		}, agboxv1.EventType_SANDBOX_UNPAUSED},
		{func() error {
			_, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id})
			return err
		}, agboxv1.EventType_SANDBOX_STOPPED},
		{func() error {
			_, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id})
			return err
		}, agboxv1.EventType_SANDBOX_READY},
	} {
		before, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
		if err == nil {
			err = step.ask()
		}
		if err != nil {
			t.Fatal(err)
		}
		d.AwaitMatch(id, before.Sandbox.LastEventSequence, func(e *agboxv1.SandboxEvent) bool {
			if e.EventType == agboxv1.EventType_SANDBOX_FAILED {
				t.Fatal(e)
			}
			return e.EventType == step.done
		})
	}
	servertest.Works(t, d, id)

	if err := d.Engine.NetworkDisconnect(t.Context(), "agbox-net-"+id, "somebody-elses-idea-"+id, true); err != nil {
		t.Fatal(err)
	}
	networkLost := func(id string) {
		t.Helper()
		if failed := servertest.FailureOf(t, d, id); failed.ErrorCode != "NETWORK_LOST" || !strings.Contains(failed.ErrorMessage, "agbox-net-"+id) {
			t.Errorf("without its network it fails with %v", failed)
		}
	}
	networkLost(id)
	d.Stop()
	if err := d.Engine.NetworkDisconnect(t.Context(), "agbox-net-"+other, "agbox-primary-"+other, true); err != nil {
		t.Fatal(err)
	}
	d.StartAgain()
	networkLost(other)
	d.Delete(id)
	d.Delete(other)
	if _, err := d.Engine.ContainerInspect(t.Context(), "somebody-elses-idea-"+id); err == nil {
		t.Error("the container that was renamed is still there")
	}
}

// TestGuestProgramStays: root inside can put nothing in the place of agbox-init, and takes neither its way to the daemon nor
// its descriptors away.
func TestGuestProgramStays(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{User: "0"})
	d.Exec(id, "sh", "-c", `mv /.agbox /moved; mkdir -p /.agbox
printf '#!/bin/sh\ntouch /ran\n' > /.agbox/init; chmod 755 /.agbox/init; mv /.agbox/init /.agbox/run /tmp`)
	if _, err := d.StatFile(t.Context(), &agboxv1.StatFileRequest{SandboxId: id, Path: "/etc/passwd"}); err != nil {
		t.Error(err)
	}
	if end, _, _ := d.Exec(id, "test", "-e", "/ran"); end.ExitCode != 1 {
		t.Error("what the sandbox had put in the place of agbox-init ran")
	}
	d.Restart()
	servertest.Works(t, d, id)

	id = d.Create(&agboxv1.CreateSpec{Image: d.Variant(dockertest.NoShell), User: "0"})
	if end, _, stderr := d.Exec(id, "probe", "nofile", "1", "3"); end.ExitCode != 2 || !strings.Contains(stderr, "not permitted") {
		t.Errorf("a limit on PID 1 ends with %v, %q", end, stderr)
	}
	if end, _, _ := d.Exec(id, "probe", "exit", "7"); end.ExitCode != 7 {
		t.Errorf("the next command ends with %v", end)
	}
}

// TestDeathDuringPause: a pause that agbox-init can no longer confirm ends with the container, which is seen then.
func TestDeathDuringPause(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	if err := d.Engine.ContainerKill(t.Context(), "agbox-primary-"+id, "STOP"); err != nil { // it confirms nothing
		t.Fatal(err)
	}
	if _, err := d.PauseSandbox(t.Context(), &agboxv1.PauseSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_PAUSE_REQUESTED)
	if err := d.Engine.ContainerKill(t.Context(), "agbox-primary-"+id, "KILL"); err != nil {
		t.Fatal(err)
	}
	if failed := servertest.FailureOf(t, d, id); failed.ErrorCode != "CONTAINER_NOT_RUNNING" {
		t.Errorf("it fails with %v", failed)
	}
}

// TestTerminalsAreBounded: a sandbox has terminals, and cannot take all that the host has, in no life of its container.
func TestTerminalsAreBounded(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		skiplog.Skip(t, "only root can bound a sandbox's terminals")
	}
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{Image: d.Variant(dockertest.NoShell), User: "0",
		Mounts: []*agboxv1.MountSpec{{Source: t.TempDir(), Target: "/data"}}}) // its first process is looked at before it connects
	for range 2 {
		if end, out, stderr := d.Exec(id, "probe", "terminals"); end.ExitCode != 0 || out != "128\n" {
			t.Errorf("it has %q terminals: %v, %s", out, end, stderr)
		}
		made := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"probe", "exit", "7"}, Tty: &agboxv1.TerminalSize{Rows: 24, Columns: 80}})
		if end := d.ExecEnd(id, made.ExecId); end.ExitCode != 7 {
			t.Errorf("a command in a terminal ends with %v", end)
		}
		until := func(state agboxv1.SandboxState) {
			t.Helper()
			waited, err := d.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id, States: []agboxv1.SandboxState{state}})
			if err != nil || !waited.Reached {
				t.Fatal(waited, err)
			}
		}
		servertest.StopSandbox(t, d, id)
		until(agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
		if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
			t.Fatal(err)
		}
		until(agboxv1.SandboxState_SANDBOX_STATE_READY)
	}
}
