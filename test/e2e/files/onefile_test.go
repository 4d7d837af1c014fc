package files_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

func mode(m uint32) *uint32 { return &m }

// read returns what a user reads at a path from home.
func read(t *testing.T, d *servertest.Daemon, id, user, path string) (*agboxv1.FileInfo, string) {
	t.Helper()
	stream, err := d.ReadFile(t.Context(), &agboxv1.ReadFileRequest{SandboxId: id, User: user, Path: path, FromHome: true})
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer stream.Close()
	content, err := io.ReadAll(stream)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return stream.Info, string(content)
}

func told(f *agboxv1.FileInfo) string {
	return fmt.Sprintf("%s %s %o %s:%s %d", f.GetPath(), f.GetType(), f.GetMode(), f.GetOwner(), f.GetGroup(), f.GetSize())
}

// TestOneFile: single files are written, read, moved and looked at as a user of the sandbox, by whose rights it goes.
func TestOneFile(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{Network: &agboxv1.NetworkSpec{Mode: "none"}})
	for _, c := range []struct {
		start   *agboxv1.WriteFileStart
		content string
		want    string
	}{
		{&agboxv1.WriteFileStart{Path: "new/deep/f", Parents: true}, "one", "/home/agbox/new/deep/f file 644 agbox:agbox 3"},
		{&agboxv1.WriteFileStart{Path: "~/new/deep/f", Mode: mode(0o600)}, "two", "/home/agbox/new/deep/f file 600 agbox:agbox 3"},
		{&agboxv1.WriteFileStart{Path: "new/deep/f"}, strings.Repeat("x", 200_000), "/home/agbox/new/deep/f file 600 agbox:agbox 200000"}, // replaced, with its mode
		{&agboxv1.WriteFileStart{Path: "new/deep/f", InPlace: true, Attributes: map[string]string{"agbox.a": "1", "other": "2"}}, "four", "/home/agbox/new/deep/f file 600 agbox:agbox 4"},
		{&agboxv1.WriteFileStart{Path: "empty"}, "", "/home/agbox/empty file 644 agbox:agbox 0"},
		{&agboxv1.WriteFileStart{Path: "f", User: "root"}, "root's", "/root/f file 644 root:root 6"},
		{&agboxv1.WriteFileStart{Path: "/opt/f", User: "root", Mode: mode(0o4755), Parents: true}, "", "/opt/f file 4755 root:root 0"},
	} {
		c.start.SandboxId, c.start.FromHome = id, true
		info, err := d.WriteFile(t.Context(), c.start, strings.NewReader(c.content))
		if err != nil || told(info) != c.want {
			t.Errorf("write of %v: %v, %v, want %s", c.start, told(info), err, c.want)
			continue
		}
		if _, got := read(t, d, id, c.start.User, c.start.Path); got != c.content {
			t.Errorf("%s has %d bytes, want %d", c.start.Path, len(got), len(c.content))
		}
	}

	stat := &agboxv1.StatFileRequest{SandboxId: id, Path: "new/deep/f", FromHome: true, Attributes: true}
	if resp, err := d.StatFile(t.Context(), stat); err != nil || resp.File.Attributes["agbox.a"] != "1" || len(resp.File.Attributes) != 2 {
		t.Errorf("attributes: %v, %v", resp, err)
	}
	again := &agboxv1.WriteFileStart{SandboxId: id, Path: "new/deep/f", FromHome: true, InPlace: true, RemoveAttributes: "agbox."}
	if info, err := d.WriteFile(t.Context(), again, strings.NewReader("five")); err != nil || len(info.Attributes) != 1 || info.Attributes["other"] != "2" {
		t.Errorf("what was to be removed is there: %v, %v", info, err)
	}
	if info, content := read(t, d, id, "", "/proc/self/comm"); info.Size != 0 || content == "" {
		t.Errorf("a file of the kernel: %v, %q", info, content)
	}
	stream, err := d.ReadFile(t.Context(), &agboxv1.ReadFileRequest{SandboxId: id, Path: "new/deep/f", FromHome: true, Offset: 1, Length: 2})
	if err != nil {
		t.Fatal(err)
	}
	if part, err := io.ReadAll(stream); string(part) != "iv" || err != nil {
		t.Errorf("a part of it: %q, %v", part, err)
	}

	made, err := d.MakeDirectory(t.Context(), &agboxv1.MakeDirectoryRequest{SandboxId: id, Path: "a/b/c", FromHome: true, Parents: true, Mode: mode(0o2770)})
	if err != nil || told(made.GetDirectory()) != "/home/agbox/a/b/c directory 2770 agbox:agbox 0" {
		t.Errorf("made: %v, %v", told(made.GetDirectory()), err)
	}
	moved, err := d.MoveFile(t.Context(), &agboxv1.MoveFileRequest{SandboxId: id, Source: "new", Destination: "a/moved/here", FromHome: true, Parents: true})
	if err != nil || told(moved.GetFile()) != "/home/agbox/a/moved/here directory 755 agbox:agbox 0" {
		t.Errorf("moved: %v, %v", told(moved.GetFile()), err)
	}
	if end, _, _ := d.Exec(id, "sh", "-c", "cd; ln -s a/moved link; ln -s nowhere dangling"); end.ExitCode != 0 {
		t.Fatal(end)
	}
	var list []string
	files, err := d.ListFiles(t.Context(), &agboxv1.ListFilesRequest{SandboxId: id, User: proto.String("agbox"), FromHome: true, Recursive: true, Depth: 2})
	for _, f := range files.GetFiles() {
		list = append(list, strings.TrimSpace(strings.TrimPrefix(f.Path, "/home/agbox/")+" "+f.ResolvedPath+" "+f.TargetType))
	}
	if got := strings.Join(list, "|"); err != nil || got != "a|a/b|a/moved|dangling|empty|link /home/agbox/a/moved directory" {
		t.Errorf("list: %s, %v", got, err)
	}

	write := func(start *agboxv1.WriteFileStart, content io.Reader) error {
		start.SandboxId = id
		_, err := d.WriteFile(t.Context(), start, content)
		return err
	}
	open := func(path, user string) error {
		_, err := d.ReadFile(t.Context(), &agboxv1.ReadFileRequest{SandboxId: id, Path: path, User: user, FromHome: true})
		return err
	}
	none := strings.NewReader("")
	servertest.Refused(t, open("a", ""), codes.FailedPrecondition, "FILE_IS_A_DIRECTORY", "path", "name a file")
	servertest.Refused(t, open("missing", ""), codes.NotFound, "FILE_NOT_FOUND", "path", "does not exist")
	servertest.Refused(t, open("/root/f", ""), codes.PermissionDenied, "FILE_PERMISSION_DENIED", "path", "name another user")
	servertest.Refused(t, open("/dev/tty", ""), codes.FailedPrecondition, "FILE_REFUSED", "path", "the sandbox says")
	servertest.Refused(t, open("x", "nobody-knows"), codes.FailedPrecondition, "OWNER_UNKNOWN", "owner", `user "nobody-knows"`)
	servertest.Refused(t, open("~root/x", ""), codes.InvalidArgument, "PATH_INVALID", "path", "another user's home")
	servertest.Refused(t, write(&agboxv1.WriteFileStart{Path: "/etc/f"}, none), codes.PermissionDenied, "FILE_PERMISSION_DENIED", "path", "name another user")
	servertest.Refused(t, write(&agboxv1.WriteFileStart{Path: "/tmp/m", Mode: mode(0o10000)}, none), codes.InvalidArgument, "FILE_MODE_INVALID", "mode", "give 0 to 07777")
	servertest.Refused(t, write(&agboxv1.WriteFileStart{Path: "/tmp/m", Attributes: map[string]string{"": "x"}}, none), codes.InvalidArgument, "FILE_ATTRIBUTES_INVALID", "attributes", "a name is empty")
	servertest.Refused(t, write(&agboxv1.WriteFileStart{Path: "/home/agbox", InPlace: true}, none), codes.FailedPrecondition, "FILE_IS_A_DIRECTORY", "path", "name a file")
	_, err = d.MakeDirectory(t.Context(), &agboxv1.MakeDirectoryRequest{SandboxId: id, Path: "a", FromHome: true})
	servertest.Refused(t, err, codes.AlreadyExists, "FILE_EXISTS", "path", "exists already")
	_, err = d.MakeDirectory(t.Context(), &agboxv1.MakeDirectoryRequest{SandboxId: id, Path: "empty", FromHome: true})
	servertest.Refused(t, err, codes.FailedPrecondition, "FILE_NOT_A_DIRECTORY", "path", "empty")
	_, err = d.MoveFile(t.Context(), &agboxv1.MoveFileRequest{SandboxId: id, Source: "empty", Destination: "a", FromHome: true, KeepExisting: true})
	servertest.Refused(t, err, codes.AlreadyExists, "FILE_EXISTS", "path", "exists already")

	// Who may write another's file and not change its mode has changed nothing.
	if end, _, _ := d.Exec(id, "sh", "-c", "echo kept >/tmp/another && chmod 666 /tmp/another"); end.ExitCode != 0 {
		t.Fatal(end)
	}
	servertest.Refused(t, write(&agboxv1.WriteFileStart{Path: "/tmp/another", User: "12345", InPlace: true, Mode: mode(0o600)}, strings.NewReader("lost")),
		codes.PermissionDenied, "FILE_PERMISSION_DENIED", "path", "name another user")
	if _, content := read(t, d, id, "", "/tmp/another"); content != "kept\n" {
		t.Errorf("after a refusal the file holds %q", content)
	}

	// A file whose bytes stop half way is not there, and what it would have replaced is as it was.
	broken := errors.New("broken")
	if err := write(&agboxv1.WriteFileStart{Path: "/home/agbox/empty"}, io.MultiReader(strings.NewReader("half"), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("%v, want what its source failed with", err)
	}
	if _, content := read(t, d, id, "", "empty"); content != "" {
		t.Errorf("a part of it is there: %q", content)
	}

	// A command of a user begins at the user's home, and tells its pid and tag.
	exec := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c", "pwd; echo $$"}, Cwd: "a", CwdFromHome: true, Tag: "mine"})
	ended, err := d.WaitExec(t.Context(), &agboxv1.WaitExecRequest{ExecId: exec.ExecId})
	if err != nil {
		t.Fatal(err)
	}
	if out := d.Read(exec.StdoutLogPath); out != fmt.Sprintf("/home/agbox/a\n%d\n", ended.Exec.Pid) || ended.Exec.Tag != "mine" {
		t.Errorf("%q of %v", out, ended)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestOneFileNoSpace: a file that does not fit is refused, and what it would have replaced stays.
func TestOneFileNoSpace(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{Network: &agboxv1.NetworkSpec{Mode: "none"}, Tmpfs: []*agboxv1.TmpfsSpec{{Target: "/small", Size: 64 << 10}}})
	start := &agboxv1.WriteFileStart{SandboxId: id, Path: "/small/f", User: "root"}
	if _, err := d.WriteFile(t.Context(), start, strings.NewReader("kept")); err != nil {
		t.Fatal(err)
	}
	_, err := d.WriteFile(t.Context(), start, strings.NewReader(strings.Repeat("x", 128<<10)))
	servertest.Refused(t, err, codes.ResourceExhausted, "FILE_NO_SPACE", "path", "no space is left")
	if _, content := read(t, d, id, "root", "/small/f"); content != "kept" {
		t.Errorf("it has %d bytes", len(content))
	}
}
