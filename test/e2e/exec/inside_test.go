package exec_test

import (
	"strings"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestTextFromInside: a command that fails with names of the sandbox's own making ends, and its end can be read, whatever is
// in them; the sandbox goes on.
func TestTextFromInside(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	passwd := `printf 'root:x:0:0::/:\nb\377d\033[2J:x:1234:1234::/:\n' >/etc/passwd; mkdir -m 700 /closed`
	if end, _, stderr := d.Exec(id, "true"); end.ExitCode != 0 {
		t.Fatal(stderr)
	}
	made := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, User: "0", Command: []string{"sh", "-c", passwd}})
	d.ExecEnd(id, made.ExecId)
	for what, request := range map[string]*agboxv1.CreateExecRequest{
		"a user with an invalid name": {User: "1234", Cwd: "/closed", Command: []string{"true"}},
		"a long command":              {User: "0", Command: []string{"/" + strings.Repeat("x", 100_000)}},
		"a long directory":            {User: "0", Command: []string{"true"}, Cwd: strings.Repeat("/漢", 1_000)},
	} {
		request.SandboxId = id
		end := d.ExecEnd(id, d.Begin(request).ExecId)
		if end.ExecState != agboxv1.ExecState_EXEC_STATE_FAILED || end.ErrorMessage == "" || len(end.ErrorMessage) > 2<<10 {
			t.Errorf("%s ends with %v", what, end)
		}
		t.Logf("%s: %.300q", what, end.ErrorMessage)
	}
	if end, _, stderr := d.Exec(id, "true"); end.ExitCode != 0 {
		t.Errorf("afterwards a command ends with %v: %s", end, stderr)
	}
}
