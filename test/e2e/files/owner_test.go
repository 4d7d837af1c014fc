package files_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestFileOwner: who owns an upload, also where nothing runs that could be asked.
func TestFileOwner(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	for _, c := range []struct {
		spec  *agboxv1.CreateSpec
		owner string
		want  string
	}{
		{&agboxv1.CreateSpec{}, "", "1000:1000 755"},
		{&agboxv1.CreateSpec{}, "root", "0:0 4755"},
		{&agboxv1.CreateSpec{}, "77:agbox", "77:1000 755"},
		{&agboxv1.CreateSpec{User: "12:13"}, "", "12:13 755"},
		{&agboxv1.CreateSpec{Image: d.Variant(dockertest.RootOnly)}, "", "0:0 4755"},
		{&agboxv1.CreateSpec{Image: d.Variant(dockertest.ImageUser)}, "", "1234:0 755"},
		{&agboxv1.CreateSpec{Image: d.Variant(dockertest.NoShell)}, "9", "9:0 755"},
	} {
		id := d.Create(c.spec)
		servertest.StopSandbox(t, d, id)
		if err := servertest.Uploading(t, d.Client, id, "/opt/x", c.owner, servertest.File("f", "x", 0o4755)); err != nil {
			t.Error(err)
			continue
		}
		f := stat(t, d, id, "/opt/x/f")
		if got := fmt.Sprintf("%d:%d %o", f.Uid, f.Gid, f.Mode); got != c.want {
			t.Errorf("user %q, owner %q: %s, want %s", c.spec.User, c.owner, got, c.want)
		}
	}
}

// TestReadOnlyRootFiles: what is writable stays so.
func TestReadOnlyRootFiles(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{ReadOnlyRoot: true})
	servertest.Refused(t, servertest.Uploading(t, d.Client, id, "/opt", "", servertest.File("f", "x", 0)), codes.FailedPrecondition, "FILE_READ_ONLY", "path", "can only be read")
	if err := servertest.Uploading(t, d.Client, id, "a/b", "", servertest.File("f", "x", 0o600)); err != nil {
		t.Fatal(err)
	}
	if end, out, _ := d.Exec(id, "sh", "-c", "cat a/b/f && stat -c %u a a/b"); end.ExitCode != 0 || out != "x1000\n1000\n" {
		t.Errorf("inside: %v %q", end, out)
	}
}

// TestFileParents: directories that the stream leaves out are the owner's, and those that were there stay as they were.
func TestFileParents(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	shell(t, d, id, "mkdir -m 700 /tmp/have; ln -s have /tmp/link")
	for _, state := range []string{"running", "stopped"} {
		if err := servertest.Uploading(t, d.Client, id, "/", "7:8", servertest.File("tmp/have/"+state+"/b/c", "1", 0o600), servertest.File("tmp/have/"+state+"/b/d", "2", 0o600), servertest.File("tmp/link/"+state+"2/x", "3", 0o600)); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"": "700 1000:1000", "/" + state: "755 7:8", "/" + state + "/b": "755 7:8", "/" + state + "/b/d": "600 7:8", "/" + state + "2": "755 7:8", "/" + state + "2/x": "600 7:8",
		} {
			f := stat(t, d, id, "/tmp/have"+name)
			if got := fmt.Sprintf("%o %d:%d", f.Mode, f.Uid, f.Gid); got != want {
				t.Errorf("%s: %s is %s, want %s", state, name, got, want)
			}
		}
		if state == "running" {
			servertest.StopSandbox(t, d, id)
		}
	}
	// The engine unpacks a stream for each window of entries, however many directories there are to look for.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	happened, _ := d.Engine.Events(ctx, events.ListOptions{Filters: filters.NewArgs(filters.Arg("event", "extract-to-dir"), filters.Arg("event", "archive-path"))})
	old := time.Unix(1_000_000_000, 0)
	entries := []servertest.Entry{{Header: tar.Header{Name: "tmp/have", Typeflag: tar.TypeDir, Mode: 0o711, ModTime: old}}, servertest.File("tmp/have/large", strings.Repeat("x", 5<<20), 0o600)}
	for i := range 50 {
		entries = append(entries, servertest.File(fmt.Sprintf("tmp/have/%d/%d/f", i%2, i), "x", 0o600))
	}
	servertest.Upload(t, d, id, "/", servertest.Archive(t, entries...))
	if f := stat(t, d, id, "/tmp/have"); f.Mode != 0o711 || f.ModifiedAt.GetSeconds() != old.Unix() {
		t.Errorf("the directory is %v", f)
	}
	for streams := 0; ; { // the look was an archive-path
		switch event := <-happened; {
		case !strings.HasSuffix(event.Actor.Attributes["name"], id):
		case event.Action == "extract-to-dir":
			streams++
		default:
			if streams > 3 {
				t.Errorf("the engine was given %d streams", streams)
			}
			return
		}
	}
}

// TestLazyFiles: the first look makes the sandbox.
func TestLazyFiles(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: d.Image, Lazy: true}})
	if err != nil {
		t.Fatal(err)
	}
	id := created.Sandbox.SandboxId
	servertest.Upload(t, d, id, "x", servertest.Archive(t, servertest.File("f", "x", 0o600)))
	if _, out, _ := d.Exec(id, "cat", "x/f"); out != "x" {
		t.Errorf("inside: %q", out)
	}
}

// A file that somebody holds, so that whoever opens it waits, ends a download of it, and holds up nothing else.
func TestDownloadOfHeldFile(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "first", "held": "mine", "z": "last"} {
		if err := os.WriteFile(path.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(syscall.Mkfifo(path.Join(dir, "fifo"), 0o640), os.Link(path.Join(dir, "a"), path.Join(dir, "b")), os.Symlink("a", path.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	id := d.Create(&agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{{Source: dir, Target: "/in"}}})
	got := servertest.Download(t, d, id, "/in")
	if len(got) != 7 || got["in/held"].Content != "mine" || got["in/b"].Linkname != "in/a" || got["in/fifo"].Typeflag != tar.TypeFifo || got["in/link"].Linkname != "a" {
		t.Errorf("the tree is %v", got)
	}
	held, err := os.Open(path.Join(dir, "held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	stream, err := d.DownloadFiles(t.Context(), &agboxv1.DownloadFilesRequest{SandboxId: id, Path: "/in"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	_, err = io.Copy(io.Discard, stream)
	servertest.Refused(t, err, codes.FailedPrecondition, "FILE_REFUSED", "path", `"/in/held" is held by a process`)
	servertest.Works(t, d, id)

	// The accounts are looked at for an upload, and may be held as well.
	swap := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, User: "0", Command: []string{"ln", "-sf", "/in/held", "/etc/passwd"}})
	if end := d.ExecEnd(id, swap.ExecId); end.ExitCode != 0 {
		t.Fatal(end)
	}
	_, err = d.UploadFiles(t.Context(), &agboxv1.UploadFilesStart{SandboxId: id, Path: "/tmp"}, bytes.NewReader(servertest.Archive(t)))
	servertest.Refused(t, err, codes.FailedPrecondition, "FILE_REFUSED", "path", "the accounts of the sandbox cannot be read")
	servertest.StopSandbox(t, d, id)
}
