package server_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestInvalidExecs: a refused exec leaves no event, and its id is free.
func TestInvalidExecs(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	id := d.Create(&agboxv1.CreateSpec{})
	const execID = "refused-exec"
	ok := []string{"true"}
	for name, test := range map[string]struct {
		request              *agboxv1.CreateExecRequest
		reason, field, words string
	}{
		"no command":         {&agboxv1.CreateExecRequest{ExecId: execID}, "COMMAND_REQUIRED", "command", "no command is given; the first word must be the program to run"},
		"empty word":         {&agboxv1.CreateExecRequest{ExecId: execID, Command: []string{"", "x"}}, "COMMAND_REQUIRED", "command", "begins with an empty word; the first word must be the program to run"},
		"NUL":                {&agboxv1.CreateExecRequest{ExecId: execID, Command: []string{"echo", "a\x00b"}}, "COMMAND_INVALID", "command[1]", `"a\x00b" contains a NUL byte; remove it`},
		"short id":           {&agboxv1.CreateExecRequest{ExecId: "x", Command: ok}, "INVALID_EXEC_ID", "exec_id", `"x"`},
		"long tag":           {&agboxv1.CreateExecRequest{Tag: strings.Repeat("x", 257), Command: ok}, "TAG_TOO_LONG", "tag", "257 bytes"},
		"id that leads out":  {&agboxv1.CreateExecRequest{ExecId: "../../x", Command: ok}, "INVALID_EXEC_ID", "exec_id", `"../../x"`},
		"id of our own log":  {&agboxv1.CreateExecRequest{ExecId: "_primary", Command: ok}, "INVALID_EXEC_ID", "exec_id", `"_primary"`},
		"id of no sandbox":   {&agboxv1.CreateExecRequest{SandboxId: "../x", Command: ok}, "INVALID_SANDBOX_ID", "sandbox_id", `"../x"`},
		"cwd with NUL":       {&agboxv1.CreateExecRequest{ExecId: execID, Command: ok, Cwd: "a\x00"}, "CWD_INVALID", "cwd", `"a\x00" contains a NUL byte; remove it`},
		"user":               {&agboxv1.CreateExecRequest{ExecId: execID, Command: ok, User: "a/b"}, "USER_INVALID", "user", `"a/b" is no user; write a name or a number`},
		"nameless variable":  {&agboxv1.CreateExecRequest{ExecId: execID, Command: ok, EnvOverrides: map[string]string{"": "x"}}, "ENV_INVALID", "env_overrides", "a variable has an empty name; name it"},
		"value that is none": {&agboxv1.CreateExecRequest{ExecId: execID, Command: ok, EnvOverrides: map[string]string{"A": "\x00"}}, "ENV_INVALID", `env_overrides["A"]`, `the value of "A" contains a NUL byte; remove it`},
	} {
		t.Run(name, func(t *testing.T) {
			if test.request.SandboxId == "" {
				test.request.SandboxId = id
			}
			_, err := d.CreateExec(t.Context(), test.request)
			servertest.Refused(t, err, codes.InvalidArgument, test.reason, test.field, test.words)
		})
	}
	d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, ExecId: execID, Command: ok})
	d.ExecEnd(id, execID)
	if got := servertest.Kinds(d.Await(id, agboxv1.EventType_EXEC_FINISHED)); got != "ACCEPTED PREPARING READY EXEC_STARTED EXEC_FINISHED" {
		t.Errorf("the log is %s", got)
	}
}

// TestInvalidSelectors: a label without a key is refused, and a refused deletion deletes nothing.
func TestInvalidSelectors(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	id := d.Create(&agboxv1.CreateSpec{})
	nameless := map[string]string{"": "x"}
	_, err := d.ListSandboxes(t.Context(), &agboxv1.ListSandboxesRequest{LabelSelector: nameless})
	servertest.Refused(t, err, codes.InvalidArgument, "LABEL_INVALID", "label_selector", `a label has an empty key (its value is "x"); name it`)
	_, err = d.DeleteSandboxes(t.Context(), &agboxv1.DeleteSandboxesRequest{LabelSelector: nameless})
	servertest.Refused(t, err, codes.InvalidArgument, "LABEL_INVALID", "label_selector", `a label has an empty key (its value is "x"); name it`)
	_, err = d.DeleteSandboxes(t.Context(), &agboxv1.DeleteSandboxesRequest{})
	servertest.Refused(t, err, codes.InvalidArgument, "LABEL_SELECTOR_REQUIRED", "label_selector", "an empty selector would match every sandbox; give at least one label")
	got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil || got.Sandbox.State != agboxv1.SandboxState_SANDBOX_STATE_READY {
		t.Errorf("the sandbox is %v, %v", got, err)
	}
}
