package mounts_test

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestMounts: a mount is live both ways, and read-only unless it is asked to be writable.
func TestMounts(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	shared, kept := t.TempDir(), t.TempDir()
	for _, dir := range []string{shared, kept} {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	file, guarded := filepath.Join(kept, "file"), filepath.Join(shared, "guarded")
	if err := os.Mkdir(guarded, 0o777); err != nil {
		t.Fatal(err)
	}
	id := d.Create(&agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{
		{Source: shared, Target: "/workspace/shared", Writable: true},
		{Source: kept, Target: "/kept"},
		{Source: guarded, Target: "/workspace/shared/guarded"},
	}})
	if err := os.WriteFile(file, []byte("from the host\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if end, stdout, stderr := d.Exec(id, "sh", "-c", "cat /kept/file; echo from inside > shared/answer"); end.ExitCode != 0 || stdout != "from the host\n" {
		t.Errorf("the sandbox reads %q, %q: %v", stdout, stderr, end)
	}
	if text, err := os.ReadFile(filepath.Join(shared, "answer")); string(text) != "from inside\n" {
		t.Errorf("the host reads %q, %v", text, err)
	}
	for _, attempt := range []string{"echo x >> /kept/file", "touch /kept/new", "rm /kept/file",
		"touch shared/guarded/new", "mv shared/guarded shared/g", "rmdir shared/guarded"} {
		if end, _, stderr := d.Exec(id, "sh", "-c", attempt); end.ExitCode == 0 {
			t.Errorf("%s is possible on a read-only mount: %s", attempt, stderr)
		}
	}
	// A mount point in a writable mount, under its own name, is in nobody's way.
	if err := servertest.Uploading(t, d.Client, id, "/workspace/shared", "", servertest.Entry{Header: tar.Header{Name: "sent", Typeflag: tar.TypeReg, Mode: 0o600, Size: 1}, Content: "x"}); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(file); string(text) != "from the host\n" {
		t.Errorf("the read-only file holds %q, %v", text, err)
	}
}

// TestOwnFilesAreReadOnly: the logs are there to be read, and neither they nor our PID 1 can be changed from inside,
// not even by root.
func TestOwnFilesAreReadOnly(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{Image: d.Variant("rootonly")})
	first := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"echo", "kept"}})
	d.ExecEnd(id, first.ExecId)
	logs := "/var/log/agents-sandbox/"
	if _, stdout, stderr := d.Exec(id, "cat", logs+first.ExecId+".stdout.log"); stdout != "kept\n" {
		t.Errorf("the log holds %q from inside: %s", stdout, stderr)
	}
	for _, attempt := range []string{
		"echo x >> " + logs + first.ExecId + ".stdout.log", "touch " + logs + "new", "rm -f " + logs + "*.log",
		"rm -f /.agbox/run/s", "echo x >> /.agbox/init", "mount -o remount,rw " + logs,
	} {
		if end, _, _ := d.Exec(id, "sh", "-c", attempt); end.ExitCode == 0 {
			t.Errorf("%q is possible from inside", attempt)
		}
	}
	if text, err := os.ReadFile(first.StdoutLogPath); string(text) != "kept\n" {
		t.Errorf("the log holds %q, %v", text, err)
	}
}
