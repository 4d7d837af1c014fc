package mounts_test

import (
	"os"
	"path/filepath"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestTmpfs: memory is writable for the user of execs wherever it is mounted, also over what the image or the engine has
// there, whose mode the engine gives it; and again after a resume.
func TestTmpfs(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{Tmpfs: []*agboxv1.TmpfsSpec{{Target: "/workspace"}, {Target: "/home/agbox"}, {Target: "/new"}}})
	look := func() {
		t.Helper()
		const script = "touch /workspace/x /home/agbox/x /new/x && stat -c '%U %a' /workspace /home/agbox /new"
		if _, stdout, stderr := d.Exec(id, "sh", "-c", script); stdout != "agbox 1777\nroot 1777\nroot 1777\n" {
			t.Errorf("%q, %s", stdout, stderr)
		}
	}
	look()
	servertest.StopSandbox(t, d, id)
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id, States: []agboxv1.SandboxState{servertest.Ready}}); err != nil {
		t.Fatal(err)
	}
	look()
}

// TestCopies: a tree arrives as it is, without what is excluded, and changes to it do not come back.
func TestCopies(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	source := t.TempDir()
	for name, text := range map[string]string{"src/main.go": "package main\n", "node_modules/x.js": "x", "run.sh": "#!/bin/sh\necho ran\n"} {
		path := filepath.Join(source, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, do := range map[string]func(string) error{
		"run.sh": func(p string) error { return os.Chmod(p, 0o755) },
		"link":   func(p string) error { return os.Symlink("src/main.go", p) },
		"src":    func(p string) error { return os.Chown(p, 2000, 2000) },
	} {
		if err := do(filepath.Join(source, path)); err != nil {
			t.Fatal(err)
		}
	}
	id := d.Create(&agboxv1.CreateSpec{Copies: []*agboxv1.CopySpec{
		{Source: source, Target: "/workspace/project", ExcludePatterns: []string{"node_modules/"}},
		{Source: filepath.Join(source, "run.sh"), Target: "/opt/tools/run"},
		{Source: source, Target: "/opt/kept", KeepOwner: true},
		{Source: source, Target: "/opt/other", Owner: "7:8"},
	}})
	script := `cd /workspace/project; find . | sort; cat link; ./run.sh; /opt/tools/run; echo mine > src/main.go
stat -c %u:%g src src/main.go link /opt/tools/run /opt/kept/src /opt/kept/run.sh /opt/other/src /opt/other/run.sh`
	want := ".\n./link\n./run.sh\n./src\n./src/main.go\npackage main\nran\nran\n" +
		"1000:1000\n1000:1000\n1000:1000\n1000:1000\n2000:2000\n0:0\n7:8\n7:8\n"
	if _, stdout, stderr := d.Exec(id, "sh", "-c", script); stdout != want {
		t.Errorf("the sandbox finds %q, %s, want %q", stdout, stderr, want)
	}
	if text, err := os.ReadFile(filepath.Join(source, "src/main.go")); err != nil || string(text) != "package main\n" {
		t.Errorf("the source is %q, %v", text, err)
	}
}
