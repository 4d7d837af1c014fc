package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/client"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// patience is for what happens at once on a machine that has nothing else to do.
const patience = time.Minute

// daemon is agboxd as main runs it, on the directories of private.
type daemon struct {
	*raw.Client
	t      *testing.T
	signal context.CancelFunc
	ended  chan int
	stderr bytes.Buffer
}

// launch returns once the daemon answers.
func launch(t *testing.T, args ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, ended: make(chan int, 1)}
	ctx, signal := context.WithCancel(context.Background())
	d.signal = signal
	go func() { d.ended <- run(ctx, args, nil, &d.stderr, &d.stderr) }()
	var err error
	if d.Client, err = raw.Dial(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { signal(); d.Client.Close() })
	d.answers(d.Client)
	return d
}

func (d *daemon) answers(c *raw.Client) {
	d.t.Helper()
	d.until("it answers", func() bool {
		_, err := c.Ping(d.t.Context(), &agboxv1.PingRequest{})
		return err == nil
	})
}

func (d *daemon) until(what string, is func() bool) {
	d.t.Helper()
	for start := time.Now(); !is(); {
		select {
		case code := <-d.ended:
			d.t.Fatalf("before %s it ended with %d: %s", what, code, d.stderr.String())
		case <-time.After(time.Millisecond):
		}
		if time.Since(start) > patience {
			d.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// end ends the daemon as a signal does.
func (d *daemon) end() {
	d.t.Helper()
	d.signal()
	d.Client.Close()
	if code := <-d.ended; code != 0 {
		d.t.Fatalf("it ended with %d: %s", code, d.stderr.String())
	}
}

func (d *daemon) wait(id string, state agboxv1.SandboxState) {
	d.t.Helper()
	waited, err := d.WaitSandbox(d.t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id, States: []agboxv1.SandboxState{state}})
	if err != nil || !waited.Reached {
		d.t.Fatalf("%s is %v, %v", id, waited, err)
	}
}

// exec runs a command to its end.
func (d *daemon) exec(id, execID string, command ...string) *agboxv1.ExecStatus {
	d.t.Helper()
	if _, err := d.CreateExec(d.t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, ExecId: execID, Command: command}); err != nil {
		d.t.Fatal(err)
	}
	done, err := d.WaitExec(d.t.Context(), &agboxv1.WaitExecRequest{ExecId: execID})
	if err != nil {
		d.t.Fatal(err)
	}
	return done.Exec
}

// refused runs agboxd where it cannot start, and returns what it says.
func refused(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	var said bytes.Buffer
	if code := run(t.Context(), args, strings.NewReader(stdin), &said, &said); code != 1 {
		t.Fatalf("agboxd %v ended with %d: %s", args, code, said.String())
	}
	return said.String()
}

func running(t *testing.T, engine *client.Client, id string) bool {
	t.Helper()
	found, err := engine.ContainerInspect(t.Context(), "agbox-primary-"+id)
	return err == nil && found.State.Running
}

// TestLostDatabase: a database that is gone, or an older copy of it, costs nobody a sandbox: the start says what there is, and
// what it is told to do with that. A backup is such a copy.
func TestLostDatabase(t *testing.T) {
	engine := dockertest.Engine(t)
	withInit(t)
	dir := private(t)
	database := filepath.Join(dir, "data", "agents-sandbox", "ids.db")
	image := dockertest.TinyImage(t, engine, dockertest.Busybox)
	first, second := filepath.Base(dir)+"-one", filepath.Base(dir)+"-two"
	for _, id := range []string{first, second} {
		t.Cleanup(func() { dockertest.Leftovers(t, engine, id) })
	}
	create := func(d *daemon, id string) {
		t.Helper()
		if _, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{
			Image: image, Labels: map[string]string{"team": "a"}, Envs: map[string]string{"A": "1"}}}); err != nil {
			t.Fatal(err)
		}
		d.wait(id, agboxv1.SandboxState_SANDBOX_STATE_READY)
	}

	d := launch(t)
	create(d, first)
	backup := filepath.Join(dir, "backup")
	var said bytes.Buffer
	if code := run(t.Context(), []string{"backup", backup}, nil, &said, &said); code != 0 {
		t.Fatalf("backup ended with %d: %s", code, said.String())
	}
	if info, err := os.Stat(backup); err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
		t.Fatalf("the backup is %v, %v", info, err)
	}
	create(d, second)
	d.exec(second, "exec-1", "sh", "-c", "exit 7")
	d.end()

	if err := os.Rename(database, database+".x"); err != nil {
		t.Fatal(err)
	}
	gone := refused(t, "")
	for _, want := range []string{database, "is not there", "There are 2 sandboxes", first, second, "since 20", "--adopt", "--forget=2"} {
		if !strings.Contains(gone, want) {
			t.Errorf("without a database it says %q, want %q", gone, want)
		}
	}
	if _, err := os.Stat(database); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the refused start made a database: %v", err)
	}
	for _, wrong := range []string{refused(t, "", "--forget=1"), refused(t, "1\n", "--forget"), refused(t, "", "--forget")} {
		if !strings.Contains(wrong, "nothing was removed") {
			t.Errorf("a wrong number gives %q", wrong)
		}
	}

	content, err := os.ReadFile(backup)
	if err == nil {
		err = os.WriteFile(database, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	older := refused(t, "")
	for _, want := range []string{"older copy", "There is 1 sandbox ", second, "--forget=1"} {
		if !strings.Contains(older, want) {
			t.Errorf("with an older copy it says %q, want %q", older, want)
		}
	}
	if !running(t, engine, first) || !running(t, engine, second) {
		t.Fatal("a container was touched")
	}

	d = launch(t, "--adopt")
	d.exec(first, "exec-2", "true")
	d.exec(second, "exec-3", "sh", "-c", "test $A = 1")
	list, err := d.ListSandboxes(t.Context(), &agboxv1.ListSandboxesRequest{LabelSelector: map[string]string{"team": "a"}})
	if err != nil || len(list.Sandboxes) != 2 {
		t.Fatalf("listed are %v, %v", list, err)
	}
	for _, sandbox := range list.Sandboxes {
		if sandbox.State != agboxv1.SandboxState_SANDBOX_STATE_READY || sandbox.Image != image || sandbox.Recovered != (sandbox.SandboxId == second) {
			t.Errorf("listed is %v", sandbox)
		}
	}
	if exec, err := d.GetExec(t.Context(), &agboxv1.GetExecRequest{ExecId: "exec-1"}); err != nil || exec.Exec.ExitCode != 7 {
		t.Errorf("the exec that the copy did not know is %v, %v", exec, err)
	}
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: second}); err != nil {
		t.Fatal(err)
	}
	d.wait(second, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: second}); err != nil {
		t.Fatal(err)
	}
	d.wait(second, agboxv1.SandboxState_SANDBOX_STATE_READY)
	d.exec(second, "exec-4", "true")
	if _, err := d.DeleteSandbox(t.Context(), &agboxv1.DeleteSandboxRequest{SandboxId: first}); err != nil {
		t.Fatal(err)
	}
	d.wait(first, agboxv1.SandboxState_SANDBOX_STATE_DELETED)
	d.end()

	if err := os.Truncate(database, 0); err != nil {
		t.Fatal(err)
	}
	if empty := refused(t, ""); !strings.Contains(empty, "is empty") || !strings.Contains(empty, "of 1 only logs") {
		t.Errorf("with an empty file it says %q", empty)
	}
	d = launch(t, "--forget=2")
	d.end()
	for _, id := range []string{first, second} {
		dockertest.Leftovers(t, engine, id)
		if _, err := os.Stat(filepath.Join(filepath.Dir(database), "exec-logs", id)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("logs of %s: %v", id, err)
		}
	}
}
