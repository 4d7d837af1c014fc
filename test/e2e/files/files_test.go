package files_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestFiles: a tree goes in and comes out, and a running, a paused and a stopped sandbox tell the same of it.
func TestFiles(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	long := strings.Repeat("long/", 3) + strings.Repeat("n", 200)
	sent := []servertest.Entry{
		{Header: tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o700}},
		{Header: tar.Header{Name: "a-b", Typeflag: tar.TypeDir, Mode: 0o750}},
		servertest.File("a-b/script", "#!/bin/sh\n", 0o4755),
		{Header: tar.Header{Name: "a", Typeflag: tar.TypeDir, Mode: 0o1777}},
		servertest.File("a/one", "one\n", 0o640),
		{Header: tar.Header{Name: "a/hard", Typeflag: tar.TypeLink, Linkname: "a/one"}},
		{Header: tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: "../../etc/passwd"}},
		{Header: tar.Header{Name: "abs", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}},
		servertest.File("with space\nand more \xff", "x", 0o600),
		servertest.File(long, "deep", 0o644),
	}
	if resp := servertest.Upload(t, d, id, "new/tree", servertest.Archive(t, sent...)); resp.Files != 7 || resp.Bytes != 10+4+1+4 {
		t.Errorf("written: %v", resp)
	}
	for name, want := range map[string]string{
		"/workspace/new":              "directory 755 0 1000:1000 ",
		"/workspace/new/tree":         "directory 700 0 1000:1000 ", // as the entry "." has it
		"new/tree/a":                  "directory 1777 0 1000:1000 ",
		"new/tree/a-b/script":         "file 755 10 1000:1000 ",
		"new/tree/a/one":              "file 640 4 1000:1000 ",
		"new/tree/a/hard":             "file 640 4 1000:1000 ",
		"new/tree/out":                "symlink 777 16 1000:1000 ../../etc/passwd",
		"/workspace/../new/../dev/":   "directory 755 0 0:0 ",
		"/workspace/new/tree/" + long: "file 644 4 1000:1000 ",
	} {
		f := stat(t, d, id, name)
		if got := fmt.Sprintf("%s %o %d %d:%d %s", f.Type, f.Mode, f.Size, f.Uid, f.Gid, f.LinkTarget); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if f := stat(t, d, id, "new/tree/a/one"); f.Path != "/workspace/new/tree/a/one" || f.ModifiedAt.GetSeconds() != 1_700_000_000 || f.ModifiedAt.GetNanos() != 123_000_000 {
		t.Errorf("stat is %v", f)
	}
	if end, out, _ := d.Exec(id, "sh", "-c", "cat new/tree/a/hard; stat -c %h new/tree/a/hard; head -1 new/tree/abs"); end.ExitCode != 0 || out != "one\n2\nroot:x:0:0:root:/root:/bin/sh\n" {
		t.Errorf("inside: %v %q", end, out)
	}

	tree := &agboxv1.ListFilesRequest{SandboxId: id, Path: "new/tree", Recursive: true}
	flat := &agboxv1.ListFilesRequest{SandboxId: id, Path: "/workspace/new/tree/", Limit: 3}
	running, cut := servertest.ListFiles(t, d, tree)
	if len(running) != 8+3+1 || cut || !strings.HasPrefix(running[0], "/workspace/new/tree/a directory") ||
		!strings.HasPrefix(running[1], "/workspace/new/tree/a/hard file 640 4 1000:1000 1700000000.123000000") || !strings.HasPrefix(running[3], "/workspace/new/tree/a-b ") {
		t.Errorf("%d files, cut off %v: %.3000q", len(running), cut, running)
	}
	runningFlat, cut := servertest.ListFiles(t, d, flat)
	if len(runningFlat) != 3 || !cut || !strings.Contains(runningFlat[2], "/abs symlink") {
		t.Errorf("cut off %v: %q", cut, runningFlat)
	}
	whole := func(lines []string) []string { // seconds are all that the engine tells
		for i := range lines {
			lines[i] = regexp.MustCompile(`(\d{5,})\.\d+ `).ReplaceAllString(lines[i], "$1 ")
		}
		return lines
	}
	running, runningFlat = whole(running), whole(runningFlat)
	same := func(state string) {
		t.Helper()
		if got, cut := servertest.ListFiles(t, d, tree); cut || !slices.Equal(whole(got), running) {
			t.Errorf("%s: %.2000q\nrunning: %.2000q", state, got, running)
		}
		if got, cut := servertest.ListFiles(t, d, flat); !cut || !slices.Equal(whole(got), runningFlat) {
			t.Errorf("%s: %q\nrunning: %q", state, got, runningFlat)
		}
		if f := stat(t, d, id, "new/tree/out"); f.LinkTarget != "../../etc/passwd" || f.Mode != 0o777 || f.Size != 16 || f.Uid != 1000 {
			t.Errorf("%s: %v", state, f)
		}
		got := servertest.Download(t, d, id, "new/tree")
		if len(got) != len(running)+1 || got["tree/"+long].Content != "deep" || got["tree/a/one"].Content+got["tree/a/hard"].Content != "one\n" ||
			got["tree/out"].Linkname != "../../etc/passwd" || got["tree/a"].Mode&0o7777 != 0o1777 {
			t.Errorf("%s: %v", state, got)
		}
		if got := servertest.Download(t, d, id, "/workspace/new/tree/a-b/script"); len(got) != 1 || got["script"].Content != "#!/bin/sh\n" {
			t.Errorf("%s: %v", state, got)
		}
	}
	same("running")
	if _, err := d.PauseSandbox(t.Context(), &agboxv1.PauseSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_PAUSED)
	same("paused")
	servertest.Upload(t, d, id, "/tmp", servertest.Archive(t, servertest.File("frozen", "ice", 0o600)))
	if _, err := d.UnpauseSandbox(t.Context(), &agboxv1.UnpauseSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_UNPAUSED)
	if _, out, _ := d.Exec(id, "cat", "/tmp/frozen"); out != "ice" {
		t.Errorf("after the pause: %q", out)
	}
	servertest.StopSandbox(t, d, id)
	same("stopped")
	servertest.Upload(t, d, id, "/home/agbox/x", servertest.Archive(t, servertest.File("f", "stopped", 0o600)))
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id, States: []agboxv1.SandboxState{servertest.Ready}}); err != nil {
		t.Fatal(err)
	}
	if end, out, _ := d.Exec(id, "cat", "/home/agbox/x/f"); end.ExitCode != 0 || out != "stopped" {
		t.Errorf("after the stop: %v %q", end, out)
	}

	remove := func(p string, recursive bool) error {
		_, err := d.RemoveFile(t.Context(), &agboxv1.RemoveFileRequest{SandboxId: id, Path: p, Recursive: recursive})
		return err
	}
	servertest.Refused(t, remove("new/tree", false), codes.FailedPrecondition, "DIRECTORY_NOT_EMPTY", "path", "remove it recursively")
	for _, err := range []error{remove("new/tree/out", false), remove("new/tree", true), remove("new", false)} {
		if err != nil {
			t.Error(err)
		}
	}
	servertest.Refused(t, remove("new", true), codes.NotFound, "FILE_NOT_FOUND", "path", `"/workspace/new" does not exist in the sandbox`)
	if f := stat(t, d, id, "/etc/passwd"); f.Size == 0 {
		t.Error("the removal followed a link")
	}
	// Nothing of all this was journaled, and nothing is left inside.
	execs, err := d.ListExecs(t.Context(), &agboxv1.ListExecsRequest{SandboxId: id})
	if err != nil || len(execs.Execs) != 3 {
		t.Errorf("execs are %v, %v", execs, err)
	}
	nothingInside(t, d, id)
}

// nothingInside returns when none of agbox-init's own commands runs in a sandbox any more: one ends after it has answered.
func nothingInside(t *testing.T, d *servertest.Daemon, id string) {
	t.Helper()
	awaited := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Timeout: durationpb.New(2 * time.Minute), Command: []string{"sh", "-c",
		"while ps -o args | grep -q '[i]nit file'; do sleep 0.1; done"}})
	if end := d.ExecEnd(id, awaited.ExecId); end.ExitCode != 0 {
		_, out, _ := d.Exec(id, "ps", "-o", "args")
		t.Errorf("after %v processes inside:\n%s", end, out)
	}
}

// TestCopy: a local tree comes back from a sandbox as it was.
func TestCopy(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	client, err := sdk.New(sdk.WithSocket(d.Socket()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	from, to := t.TempDir(), path.Join(t.TempDir(), "new")
	for _, err := range []error{
		os.MkdirAll(path.Join(from, "sub/empty"), 0o755), os.Chmod(path.Join(from, "sub"), 0o710),
		os.WriteFile(path.Join(from, "sub/file"), []byte("content"), 0o640), os.Symlink("sub/file", path.Join(from, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got, err := client.Upload(t.Context(), id, from, "tree"); err != nil || got.Files != 2 || got.Bytes != 7 {
		t.Fatal(got, err)
	}
	// A link that leads out of the local directory is copied, and nothing is written through it.
	shell(t, d, id, "ln -s /etc tree/way; ln tree/sub/file tree/hard; mkfifo tree/pipe")
	err = client.Download(t.Context(), id, "tree", to)
	if err == nil || !strings.Contains(err.Error(), "not copied, as they are neither files nor directories nor links: \"tree/pipe\"") {
		t.Error(err)
	}
	for name, want := range map[string]string{"sub": "drwx--x---", "sub/empty": "drwxr-xr-x", "sub/file": "-rw-r-----", "hard": "-rw-r-----", "way": "Lrwxrwxrwx", "link": "Lrwxrwxrwx"} {
		if info, err := os.Lstat(path.Join(to, name)); err != nil || info.Mode().String() != want {
			t.Errorf("%s is %v, %v", name, info, err)
		}
	}
	if text, err := os.ReadFile(path.Join(to, "link")); string(text) != "content" {
		t.Errorf("%q, %v", text, err)
	}
	shell(t, d, id, "rm tree/way; mkdir tree/way; echo x >tree/way/passwd; rm tree/pipe")
	if err := client.Download(t.Context(), id, "tree", to); err == nil || !strings.Contains(err.Error(), "remove it first") {
		t.Error(err)
	}
	if _, _, err := client.ListFiles(t.Context(), id, "none"); !errors.Is(err, sdk.ErrFileNotFound) {
		t.Error(err)
	}
	var kinds []string
	for event, err := range client.WatchFiles(t.Context(), id, "tree/way", false) {
		if err != nil {
			t.Fatal(err)
		}
		if kinds = append(kinds, event.Kind); event.Kind == "watching" {
			if err := client.RemoveFile(t.Context(), id, "tree/way", true); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !slices.Equal(kinds, []string{"watching", "removed", "removed"}) {
		t.Errorf("events are %v", kinds)
	}
}

// TestManyFiles: 5,000 files in, listed and out again, and as fast as this machine is.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	manyFiles(t, 1000)
}

func manyFiles(t *testing.T, n int) {
	t.Helper()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	var entries []servertest.Entry
	for i := range n {
		entries = append(entries, servertest.File(fmt.Sprintf("%02d/%04d", i%20, i), fmt.Sprint(i), 0o644))
	}
	begun := time.Now()
	if resp := servertest.Upload(t, d, id, "many", servertest.Archive(t, entries...)); resp.Files != uint64(n) {
		t.Errorf("written: %v", resp)
	}
	up := time.Since(begun)
	request := &agboxv1.ListFilesRequest{SandboxId: id, Path: "many", Recursive: true}
	begun = time.Now()
	lines, cut := servertest.ListFiles(t, d, request)
	listed := time.Since(begun)
	if len(lines) != n+20 || cut {
		t.Errorf("%d files, cut off: %v", len(lines), cut)
	}
	begun = time.Now()
	if got := servertest.Download(t, d, id, "many"); len(got) != n+20+1 || got["many/19/0999"].Content != "999" {
		t.Errorf("%d files came back", len(got))
	}
	down := time.Since(begun)
	begun = time.Now()
	stat(t, d, id, "many/00/0000")
	t.Logf("upload %v, list %v, download %v, stat %v", up, listed, down, time.Since(begun))
	servertest.StopSandbox(t, d, id)
	begun = time.Now()
	if again, _ := servertest.ListFiles(t, d, request); len(again) != len(lines) {
		t.Errorf("%d files when it is stopped", len(again))
	}
	t.Logf("list of the stopped one %v", time.Since(begun))
}
