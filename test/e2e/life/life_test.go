package life_test

import (
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

func TestLife(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{Envs: map[string]string{"GREETING": "hello"}})

	end, stdout, stderr := d.Exec(id, "sh", "-c", `echo "$GREETING $(id -un) $PWD"; echo oops >&2; echo kept > /workspace/file; exit 3`)
	if end.ExitCode != 3 || end.ExecState != agboxv1.ExecState_EXEC_STATE_FINISHED {
		t.Errorf("exec ended with %v, want exit code 3", end)
	}
	if want := "hello agbox /workspace\n"; stdout != want || stderr != "oops\n" {
		t.Errorf("output is %q and %q, want %q and %q", stdout, stderr, want, "oops\n")
	}

	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	stopped := len(d.Await(id, agboxv1.EventType_SANDBOX_STOPPED))
	d.AwaitMatch(id, uint64(stopped), func(e *agboxv1.SandboxEvent) bool { return e.EventType == agboxv1.EventType_SANDBOX_READY })
	if _, stdout, _ := d.Exec(id, "cat", "file"); stdout != "kept\n" {
		t.Errorf("after the resume the file holds %q", stdout)
	}
}
