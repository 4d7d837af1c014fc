package spec_test

import (
	"slices"
	"strings"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

func TestIDs(t *testing.T) {
	for _, id := range []string{"abcd", "a--b", "A_-9", strings.Repeat("x", 200), "7d4f4b1e-9c0a-4c59-9a44-0e1a3f6f5b55"} {
		if err := spec.ValidateSandboxID("sandbox_id", id); err != nil {
			t.Error(err)
		}
		if err := spec.ValidateSnapshotID("snapshot_id", id); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", "abc", "-abc", "abc-", "_abc", "abc_", "ab.c", "ab/c", "ab c", "abcd\n", "äbcd", strings.Repeat("x", 201)} {
		wantRefusal(t, spec.ValidateSandboxID("f", id), spec.ReasonInvalidSandboxID, "f", "4 to 200")
		wantRefusal(t, spec.ValidateSnapshotID("f", id), spec.ReasonInvalidSnapshotID, "f", "4 to 200")
	}
	_, err := spec.Resolve(&agboxv1.CreateSandboxRequest{SandboxId: "a!"}, spec.Host{})
	wantRefusal(t, err, spec.ReasonInvalidSandboxID, "sandbox_id", `"a!"`)
}

func TestExec(t *testing.T) {
	tests := []struct {
		name                string
		edit                func(*agboxv1.CreateExecRequest)
		reason, field, part string
	}{
		{"valid", func(*agboxv1.CreateExecRequest) {}, "", "", ""},
		{"with id", func(r *agboxv1.CreateExecRequest) { r.ExecId = "exec-1" }, "", "", ""},
		{"empty arguments", func(r *agboxv1.CreateExecRequest) { r.Command = []string{"echo", "", ""} }, "", "", ""},
		{"relative cwd", func(r *agboxv1.CreateExecRequest) { r.Cwd = "sub/dir" }, "", "", ""},
		{"no sandbox", func(r *agboxv1.CreateExecRequest) { r.SandboxId = "" }, spec.ReasonInvalidSandboxID, "sandbox_id", `""`},
		{"bad id", func(r *agboxv1.CreateExecRequest) { r.ExecId = "x" }, spec.ReasonInvalidExecID, "exec_id", `"x"`},
		{"no command", func(r *agboxv1.CreateExecRequest) { r.Command = nil }, spec.ReasonCommandRequired, "command", "first word"},
		{"empty program", func(r *agboxv1.CreateExecRequest) { r.Command = []string{"", "x"} }, spec.ReasonCommandRequired, "command", "first word"},
		{"NUL in argument", func(r *agboxv1.CreateExecRequest) { r.Command = []string{"a", "b\x00"} }, spec.ReasonCommandInvalid, "command[1]", "NUL"},
		{"tag that is too long", func(r *agboxv1.CreateExecRequest) { r.Tag = strings.Repeat("x", 257) }, spec.ReasonTagTooLong, "tag", "257 bytes"},
		{"NUL in cwd", func(r *agboxv1.CreateExecRequest) { r.Cwd = "\x00" }, spec.ReasonCwdInvalid, "cwd", "NUL"},
		{"argument that is too long", func(r *agboxv1.CreateExecRequest) { r.Command = []string{"a", strings.Repeat("x", 128<<10)} }, spec.ReasonCommandInvalid, "command[1]", "131072 bytes"},
		{"too many arguments", func(r *agboxv1.CreateExecRequest) {
			r.Command = slices.Repeat([]string{strings.Repeat("x", 100_000)}, 11)
		}, spec.ReasonCommandInvalid, "command", "1100011 bytes"},
		{"too much with the variables", func(r *agboxv1.CreateExecRequest) {
			r.Command = slices.Repeat([]string{strings.Repeat("x", 100_000)}, 10)
			r.EnvOverrides = map[string]string{"A": strings.Repeat("x", 100_000)}
		}, spec.ReasonCommandInvalid, "command", "1100013 bytes"},
		{"variable that is too long", func(r *agboxv1.CreateExecRequest) {
			r.EnvOverrides = map[string]string{"A": strings.Repeat("x", 128<<10-2)}
		}, spec.ReasonEnvInvalid, `env_overrides["A"]`, "131072 bytes"},
		{"directory that is none", func(r *agboxv1.CreateExecRequest) { r.Cwd = strings.Repeat("x", 4096) }, spec.ReasonCwdInvalid, "cwd", "4096 bytes"},
		{"bad variable", func(r *agboxv1.CreateExecRequest) { r.EnvOverrides = map[string]string{"A=": ""} }, spec.ReasonEnvInvalid, `env_overrides["A="]`, "variable name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := &agboxv1.CreateExecRequest{SandboxId: "box1", Command: []string{"true"}}
			tt.edit(req)
			err := spec.ValidateExec(req)
			if tt.reason != "" {
				wantRefusal(t, err, tt.reason, tt.field, tt.part)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSelector(t *testing.T) {
	if err := spec.ValidateSelector("label_selector", map[string]string{"a": ""}); err != nil {
		t.Error(err)
	}
	if err := spec.ValidateLabels("label_selector", nil); err != nil {
		t.Error(err)
	}
	wantRefusal(t, spec.ValidateSelector("label_selector", nil), spec.ReasonSelectorRequired, "label_selector", "every sandbox")
	wantRefusal(t, spec.ValidateSelector("label_selector", map[string]string{"": "v"}), spec.ReasonLabelInvalid, "label_selector", "empty key")
	long := spec.ValidateLabels("labels", map[string]string{strings.Repeat("k", 10_000) + "\x00": ""})
	if len(long.Error()) > 1_000 {
		t.Errorf("an error of %d bytes", len(long.Error()))
	}
}
