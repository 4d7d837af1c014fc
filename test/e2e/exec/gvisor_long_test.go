//go:build long

package exec_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestLongGVisor: a sandbox with a kernel of its own, to which no descriptor can be passed, keeps what others keep: output, input,
// results, the end of everything that a command started, files, terminals, stop and resume, and a daemon that goes away.
func TestLongGVisor(t *testing.T) {
	t.Setenv("AGBOX_ENGINE_RUNSC", "yes")
	host, image := privateEngine(t)
	d := servertest.Start(t, func(c *dockerrt.Config) { c.Host = host })
	client := sdkClient(t, d)
	id := d.Create(&agboxv1.CreateSpec{Image: image, Runtime: "runsc"})
	if _, out, _ := d.Exec(id, "dmesg"); !strings.Contains(out, "gVisor") {
		t.Fatalf("its kernel says %q", out)
	}
	if end, out, stderr := d.Exec(id, "sh", "-c", "echo out; echo err >&2; exit 7"); end.ExitCode != 7 || out != "out\n" || stderr != "err\n" {
		t.Errorf("%v, %q, %q", end, out, stderr)
	}
	typed, err := client.CreateExec(t.Context(), id, []string{"cat"}, sdk.WithStdin())
	if err != nil {
		t.Fatal(err)
	}
	a, err := client.AttachExec(t.Context(), typed.ID)
	if err != nil {
		t.Fatal(err)
	}
	typeIn(t, a, "typed")
	if err := a.CloseStdin(); err != nil {
		t.Error(err)
	}
	if end, err := a.Wait(); err != nil || end.ExitCode != 0 || d.Read(typed.StdoutPath) != "typed" {
		t.Errorf("%+v, %v, %q", end, err, d.Read(typed.StdoutPath))
	}

	late := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c", "sleep 301 & setsid sleep 302 & sleep 303"},
		Timeout: durationpb.New(1e9)})
	if end := d.ExecEnd(id, late.ExecId); !end.Resources.GetTimedOut() {
		t.Errorf("a command after its timeout: %v", end)
	}
	if _, out, _ := d.Exec(id, "ps", "-o", "args"); strings.Contains(out, "sleep 30") {
		t.Errorf("after its timeout there are\n%s", out)
	}

	screen := servertest.NewScreen()
	exec, err := client.CreateExec(t.Context(), id, []string{"sh"}, sdk.WithTerminal(10, 40), sdk.WithEnv(map[string]string{"PS1": "$ "}))
	if err != nil {
		t.Fatal(err)
	}
	a, err = client.AttachExec(t.Context(), exec.ID, sdk.WithOutputFrom(0, 0), sdk.WithOutput(screen, nil))
	if err != nil {
		t.Fatal(err)
	}
	screen.Await(t, `\$ `)
	typeIn(t, a, "tty; exit 5\r")
	if end, err := a.Wait(); err != nil || end.ExitCode != 5 {
		t.Errorf("the shell ended as %+v, %v", end, err)
	}
	screen.Await(t, `/dev/pts/\d+\r\n`)

	d.Exec(id, "sh", "-c", "echo kept >/workspace/file")
	survivor := d.Script(id, "echo before")
	d.Restart()
	if err := client.CancelExec(t.Context(), survivor); err != nil {
		t.Error(err)
	}
	if end := d.ExecEnd(id, survivor); end.ExitCode != 143 {
		t.Errorf("what ran through a restart of the daemon ended as %v", end)
	}
	if err := errors.Join(client.Stop(t.Context(), id), client.Resume(t.Context(), id)); err != nil {
		t.Fatal(err)
	}
	if end, out, _ := d.Exec(id, "cat", "/workspace/file"); out != "kept\n" {
		t.Errorf("after stop and resume: %v, %q", end, out)
	}
}
