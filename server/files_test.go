package server_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

type tarEntry struct {
	tar.Header
	content string
}

func file(name, content string, mode int64) tarEntry {
	return tarEntry{tar.Header{Name: name, Mode: mode, Size: int64(len(content)), Uid: 4711, Gid: 4712, ModTime: time.Unix(1_700_000_000, 123_000_000), Format: tar.FormatPAX}, content}
}

func archive(t *testing.T, entries ...tarEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func upload(t *testing.T, d *servertest.Daemon, id, dir string, stream []byte) *agboxv1.UploadFilesResponse {
	t.Helper()
	resp, err := d.UploadFiles(t.Context(), &agboxv1.UploadFilesStart{SandboxId: id, Path: dir}, bytes.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func uploading(t *testing.T, c *raw.Client, id, dir, owner string, entries ...tarEntry) error {
	t.Helper()
	_, err := c.UploadFiles(t.Context(), &agboxv1.UploadFilesStart{SandboxId: id, Path: dir, Owner: owner}, bytes.NewReader(archive(t, entries...)))
	return err
}

func download(t *testing.T, d *servertest.Daemon, id, p string) map[string]tarEntry {
	t.Helper()
	stream, err := d.DownloadFiles(t.Context(), &agboxv1.DownloadFilesRequest{SandboxId: id, Path: p})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	all := map[string]tarEntry{}
	for in := tar.NewReader(stream); ; {
		h, err := in.Next()
		if err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(h.Name, "/")] = tarEntry{*h, string(text)}
	}
}

func stat(t *testing.T, d *servertest.Daemon, id, p string) *agboxv1.FileInfo {
	t.Helper()
	resp, err := d.StatFile(t.Context(), &agboxv1.StatFileRequest{SandboxId: id, Path: p})
	if err != nil {
		t.Fatal(err)
	}
	return resp.File
}

func list(t *testing.T, d *servertest.Daemon, req *agboxv1.ListFilesRequest) (lines []string, truncated bool) {
	t.Helper()
	resp, err := d.ListFiles(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range resp.Files {
		lines = append(lines, fmt.Sprintf("%s %s %o %d %d:%d %d.%d %s", f.Path, f.Type, f.Mode, f.Size, f.Uid, f.Gid, f.ModifiedAt.GetSeconds(), f.ModifiedAt.GetNanos(), f.LinkTarget))
	}
	return lines, resp.Truncated
}

func stop(t *testing.T, d *servertest.Daemon, id string) {
	t.Helper()
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
}

// TestFiles: a tree goes in and comes out, and a running, a paused and a stopped sandbox tell the same of it.
func TestFiles(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	long := strings.Repeat("long/", 3) + strings.Repeat("n", 200)
	sent := []tarEntry{
		{tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o700}, ""},
		{tar.Header{Name: "a-b", Typeflag: tar.TypeDir, Mode: 0o750}, ""},
		file("a-b/script", "#!/bin/sh\n", 0o4755),
		{tar.Header{Name: "a", Typeflag: tar.TypeDir, Mode: 0o1777}, ""},
		file("a/one", "one\n", 0o640),
		{tar.Header{Name: "a/hard", Typeflag: tar.TypeLink, Linkname: "a/one"}, ""},
		{tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: "../../etc/passwd"}, ""},
		{tar.Header{Name: "abs", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, ""},
		file("with space\nand more \xff", "x", 0o600),
		file(long, "deep", 0o644),
	}
	if resp := upload(t, d, id, "new/tree", archive(t, sent...)); resp.Files != 7 || resp.Bytes != 10+4+1+4 {
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
	running, cut := list(t, d, tree)
	if len(running) != 8+3+1 || cut || !strings.HasPrefix(running[0], "/workspace/new/tree/a directory") ||
		!strings.HasPrefix(running[1], "/workspace/new/tree/a/hard file 640 4 1000:1000 1700000000.123000000") || !strings.HasPrefix(running[3], "/workspace/new/tree/a-b ") {
		t.Errorf("%d files, cut off %v: %.3000q", len(running), cut, running)
	}
	runningFlat, cut := list(t, d, flat)
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
		if got, cut := list(t, d, tree); cut || !slices.Equal(whole(got), running) {
			t.Errorf("%s: %.2000q\nrunning: %.2000q", state, got, running)
		}
		if got, cut := list(t, d, flat); !cut || !slices.Equal(whole(got), runningFlat) {
			t.Errorf("%s: %q\nrunning: %q", state, got, runningFlat)
		}
		if f := stat(t, d, id, "new/tree/out"); f.LinkTarget != "../../etc/passwd" || f.Mode != 0o777 || f.Size != 16 || f.Uid != 1000 {
			t.Errorf("%s: %v", state, f)
		}
		got := download(t, d, id, "new/tree")
		if len(got) != len(running)+1 || got["tree/"+long].content != "deep" || got["tree/a/one"].content+got["tree/a/hard"].content != "one\n" ||
			got["tree/out"].Linkname != "../../etc/passwd" || got["tree/a"].Mode&0o7777 != 0o1777 {
			t.Errorf("%s: %v", state, got)
		}
		if got := download(t, d, id, "/workspace/new/tree/a-b/script"); len(got) != 1 || got["script"].content != "#!/bin/sh\n" {
			t.Errorf("%s: %v", state, got)
		}
	}
	same("running")
	if _, err := d.PauseSandbox(t.Context(), &agboxv1.PauseSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_PAUSED)
	same("paused")
	upload(t, d, id, "/tmp", archive(t, file("frozen", "ice", 0o600)))
	if _, err := d.UnpauseSandbox(t.Context(), &agboxv1.UnpauseSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_UNPAUSED)
	if _, out, _ := d.Exec(id, "cat", "/tmp/frozen"); out != "ice" {
		t.Errorf("after the pause: %q", out)
	}
	stop(t, d, id)
	same("stopped")
	upload(t, d, id, "/home/agbox/x", archive(t, file("f", "stopped", 0o600)))
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id, States: []agboxv1.SandboxState{ready}}); err != nil {
		t.Fatal(err)
	}
	if end, out, _ := d.Exec(id, "cat", "/home/agbox/x/f"); end.ExitCode != 0 || out != "stopped" {
		t.Errorf("after the stop: %v %q", end, out)
	}

	remove := func(p string, recursive bool) error {
		_, err := d.RemoveFile(t.Context(), &agboxv1.RemoveFileRequest{SandboxId: id, Path: p, Recursive: recursive})
		return err
	}
	refused(t, remove("new/tree", false), codes.FailedPrecondition, "DIRECTORY_NOT_EMPTY", "path", "remove it recursively")
	for _, err := range []error{remove("new/tree/out", false), remove("new/tree", true), remove("new", false)} {
		if err != nil {
			t.Error(err)
		}
	}
	refused(t, remove("new", true), codes.NotFound, "FILE_NOT_FOUND", "path", `"/workspace/new" does not exist in the sandbox`)
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

// nothingInside fails the test when agbox-init's own commands still run in a sandbox.
func nothingInside(t *testing.T, d *servertest.Daemon, id string) {
	t.Helper()
	if _, out, _ := d.Exec(id, "ps", "-o", "args"); strings.Contains(out, "init file") {
		t.Errorf("processes inside:\n%s", out)
	}
}

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
		stop(t, d, id)
		if err := uploading(t, d.Client, id, "/opt/x", c.owner, file("f", "x", 0o4755)); err != nil {
			t.Error(err)
			continue
		}
		f := stat(t, d, id, "/opt/x/f")
		if got := fmt.Sprintf("%d:%d %o", f.Uid, f.Gid, f.Mode); got != c.want {
			t.Errorf("user %q, owner %q: %s, want %s", c.spec.User, c.owner, got, c.want)
		}
	}
}

// TestFileRefusals: every way out of the sandbox, and out of what its caller may touch.
func TestFileRefusals(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	outside := t.TempDir()
	if err := os.WriteFile(path.Join(outside, "file"), []byte("host"), 0o644); err != nil {
		t.Fatal(err)
	}
	id := d.Create(&agboxv1.CreateSpec{
		Mounts: []*agboxv1.MountSpec{{Source: outside, Target: "/ro"}, {Source: outside, Target: "/workspace/rw", Writable: true}},
		Tmpfs:  []*agboxv1.TmpfsSpec{{Target: "/mem"}},
	})
	if end, _, stderr := d.Exec(id, "sh", "-c", "ln -s /ro /tmp/ro; ln -s / /tmp/root; ln -s /../../../../etc /tmp/etc; ln -s /none /tmp/none; ln -s /mem /tmp/mem; mkdir /tmp/full; touch /tmp/full/file"); end.ExitCode != 0 {
		t.Fatal(stderr)
	}
	link := func(kind byte, name, target string) tarEntry {
		return tarEntry{tar.Header{Name: name, Typeflag: kind, Linkname: target}, ""}
	}
	f := file("f", "x", 0o644)
	for _, c := range []struct {
		dir, owner           string
		entry                tarEntry
		code                 codes.Code
		reason, field, words string
	}{
		{"/tmp/up", "", file("../x", "", 0), codes.InvalidArgument, "PATH_ESCAPES", "data", `"../x", which contains ".."`},
		{"/tmp/up", "", file("a/../../x", "", 0), codes.InvalidArgument, "PATH_ESCAPES", "data", `which contains ".."`},
		{"/tmp/up", "", file("/etc/x", "", 0), codes.InvalidArgument, "PATH_ESCAPES", "data", `"/etc/x", an absolute name`},
		{"/tmp/up", "", link(tar.TypeLink, "x", "/etc/passwd"), codes.InvalidArgument, "PATH_ESCAPES", "data", "an absolute name"},
		{"/tmp/up", "", link(tar.TypeLink, "x", "../../etc/passwd"), codes.InvalidArgument, "PATH_ESCAPES", "data", `which contains ".."`},
		{"/tmp/up", "", link(tar.TypeLink, "x", "other"), codes.InvalidArgument, "TAR_ENTRY_REFUSED", "data", `the hard link "x" to "other", which is no file that came before it`},
		{"/tmp/up", "", link(tar.TypeChar, "x", ""), codes.InvalidArgument, "TAR_ENTRY_REFUSED", "data", `"x", a device; leave it out`},
		{"/tmp/up", "", link(tar.TypeFifo, "x", ""), codes.InvalidArgument, "TAR_ENTRY_REFUSED", "data", `"x", a named pipe; leave it out`},
		{"/tmp/up", "", file(".", "", 0), codes.InvalidArgument, "TAR_ENTRY_REFUSED", "data", "which is the directory itself"},
		{"", "", f, codes.InvalidArgument, "PATH_INVALID", "path", "no path is given"},
		{"/" + strings.Repeat("x", 4096), "", f, codes.InvalidArgument, "PATH_INVALID", "path", "shorten it"},
		{"/.agbox", "", f, codes.InvalidArgument, "PATH_RESERVED", "path", "which the sandbox needs for itself; choose another path"},
		{"/tmp/root", "", file(".agbox/init", "x", 0), codes.InvalidArgument, "PATH_RESERVED", "path", `"/.agbox/init" lies in /.agbox`},
		{"/var/log/agents-sandbox", "", f, codes.InvalidArgument, "PATH_RESERVED", "path", "choose another path"},
		{"/tmp/none/x", "", f, codes.NotFound, "FILE_NOT_FOUND", "path", `goes through a link to "/none", which does not exist`},
		{"/etc/passwd", "", f, codes.FailedPrecondition, "FILE_NOT_A_DIRECTORY", "path", `"/etc/passwd" is not a directory`},
		{"/etc/passwd/x", "", f, codes.FailedPrecondition, "FILE_NOT_A_DIRECTORY", "path", `goes through "/etc/passwd"`},
		{"/ro/new", "", f, codes.FailedPrecondition, "FILE_READ_ONLY", "path", "lies in the mount /ro, which is read-only"},
		{"/tmp/ro", "", f, codes.FailedPrecondition, "FILE_READ_ONLY", "path", "choose a path in a writable mount"},
		{"/tmp/root", "", file("ro/x", "x", 0), codes.FailedPrecondition, "FILE_READ_ONLY", "path", "can only be read"},
		{"/mem", "", f, codes.FailedPrecondition, "FILE_IN_MEMORY", "path", "in the memory of the sandbox"},
		{"/tmp/mem/x", "", f, codes.FailedPrecondition, "FILE_IN_MEMORY", "path", `"/mem/x" lies in /mem`},
		{"/tmp", "", file("full", "x", 0), codes.FailedPrecondition, "FILE_REFUSED", "path", "cannot overwrite directory"},
		{"/tmp/up", "nobody-there", f, codes.FailedPrecondition, "OWNER_UNKNOWN", "owner", `user "nobody-there" is not in /etc/passwd`},
		{"/tmp/up", "0:nobody-there", f, codes.FailedPrecondition, "OWNER_UNKNOWN", "owner", `group "nobody-there" is not in /etc/group`},
		{"/tmp/up", "a b", f, codes.InvalidArgument, "USER_INVALID", "owner", `"a b" is no user`},
	} {
		refused(t, uploading(t, d.Client, id, c.dir, c.owner, c.entry), c.code, c.reason, c.field, c.words)
	}
	half := archive(t, file("big", strings.Repeat("x", 5000), 0))[:3000]
	for stream, words := range map[string]string{strings.Repeat("no tar", 1000): "it is not a tar stream", string(half): "ends in the middle"} {
		_, err := d.UploadFiles(t.Context(), &agboxv1.UploadFilesStart{SandboxId: id, Path: "/tmp/half"}, strings.NewReader(stream))
		refused(t, err, codes.InvalidArgument, "TAR_INVALID", "data", words)
	}
	conn, err := grpc.NewClient("unix:"+d.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	begin := &agboxv1.UploadFilesRequest{Message: &agboxv1.UploadFilesRequest_Start{Start: &agboxv1.UploadFilesStart{SandboxId: id, Path: "/tmp/twice"}}}
	for words, messages := range map[string][]*agboxv1.UploadFilesRequest{
		"the first message has none":  {{Message: &agboxv1.UploadFilesRequest_Data{}}},
		"the first message has none;": {},
		"it comes a second time":      {begin, begin},
	} {
		malformed(t, conn, words, messages)
	}

	// A link leads to the sandbox's files and not to the host's, whatever it says.
	if err := uploading(t, d.Client, id, "/tmp/etc", "", file("mark", "x", 0o644)); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat("/etc/mark"); err == nil {
		t.Error("the host was written to")
	}
	if f := stat(t, d, id, "/etc/mark"); f.Uid != 1000 {
		t.Errorf("it is %v", f)
	}
	if err := uploading(t, d.Client, id, "rw/sub", "", file("mark", "x", 0o644)); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path.Join(outside, "sub", "mark")); string(text) != "x" {
		t.Errorf("the writable mount has %q, %v", text, err)
	}

	remove := func(p string) error {
		_, err := d.RemoveFile(t.Context(), &agboxv1.RemoveFileRequest{SandboxId: id, Path: p, Recursive: true})
		return err
	}
	for p, words := range map[string]string{
		"/": "the sandbox's root, which stays", "/workspace/..": "the sandbox's root, which stays", "/tmp/root/.agbox": "lies in /.agbox",
		"/.agbox/init": "lies in /.agbox", "/proc/1": "lies in /proc", "/dev/null": "lies in /dev",
	} {
		refused(t, remove(p), codes.InvalidArgument, "PATH_RESERVED", "path", words)
	}
	for _, p := range []string{"/ro", "/workspace", "/tmp/root/workspace/rw", "/mem", "/etc", "/var"} {
		refused(t, remove(p), codes.FailedPrecondition, "FILE_MOUNTED", "path", "the mount point")
	}
	refused(t, remove("/ro/file"), codes.FailedPrecondition, "FILE_READ_ONLY", "path", "can only be read")
	if text, err := os.ReadFile(path.Join(outside, "file")); string(text) != "host" {
		t.Errorf("the host's file has %q, %v", text, err)
	}
	_, err = d.ListFiles(t.Context(), &agboxv1.ListFilesRequest{SandboxId: id, Path: "/etc/passwd"})
	refused(t, err, codes.FailedPrecondition, "FILE_NOT_A_DIRECTORY", "path", "is not a directory")
	_, err = d.StatFile(t.Context(), &agboxv1.StatFileRequest{SandboxId: id, Path: "/tmp/\x00"})
	refused(t, err, codes.InvalidArgument, "PATH_INVALID", "path", "NUL byte; remove it")
	stream, err := d.DownloadFiles(t.Context(), &agboxv1.DownloadFilesRequest{SandboxId: id, Path: "/mem/x"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	_, err = stream.Read(make([]byte, 1))
	refused(t, err, codes.FailedPrecondition, "FILE_IN_MEMORY", "path", "use an exec, or another path")

	stop(t, d, id)
	for _, p := range []string{"/etc/passwd", "/none"} {
		_, err = d.ListFiles(t.Context(), &agboxv1.ListFilesRequest{SandboxId: id, Path: p})
		if p == "/none" {
			refused(t, err, codes.NotFound, "FILE_NOT_FOUND", "path", `"/none" does not exist in the sandbox`)
		} else {
			refused(t, err, codes.FailedPrecondition, "FILE_NOT_A_DIRECTORY", "path", "is not a directory")
		}
	}
	notReady(t, remove("/etc/mark"), "is STOPPED: for this it has to run: resume it")
	d.Delete(id)
	_, err = d.StatFile(t.Context(), &agboxv1.StatFileRequest{SandboxId: id, Path: "/"})
	notReady(t, err, "is DELETED: its files can be reached while it is READY")
	_, err = d.StatFile(t.Context(), &agboxv1.StatFileRequest{SandboxId: "none", Path: "/"})
	refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "")
}

// malformed sends messages as no client of ours does.
func malformed(t *testing.T, conn *grpc.ClientConn, words string, messages []*agboxv1.UploadFilesRequest) {
	t.Helper()
	stream, err := agboxv1.NewSandboxServiceClient(conn).UploadFiles(t.Context())
	for _, message := range messages {
		if err == nil {
			err = stream.Send(message)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.CloseAndRecv()
	st := status.Convert(err)
	if len(st.Details()) == 1 {
		info := st.Details()[0].(*errdetails.ErrorInfo)
		err = &raw.Error{Code: st.Code(), Message: st.Message(), Reason: info.Reason, Metadata: info.Metadata}
	}
	refused(t, err, codes.InvalidArgument, "UPLOAD_MALFORMED", "start", words)
}

func notReady(t *testing.T, err error, words string) {
	t.Helper()
	refusal, ok := errors.AsType[*raw.Error](err)
	if !ok || refusal.Code != codes.FailedPrecondition || refusal.Reason != "SANDBOX_NOT_READY" || !strings.Contains(refusal.Message, words) || refusal.Metadata["sandbox_id"] == "" {
		t.Errorf("got %v, want SANDBOX_NOT_READY with %q", err, words)
	}
}

// TestReadOnlyRootFiles: what is writable stays so.
func TestReadOnlyRootFiles(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{ReadOnlyRoot: true})
	refused(t, uploading(t, d.Client, id, "/opt", "", file("f", "x", 0)), codes.FailedPrecondition, "FILE_READ_ONLY", "path", "lies in the sandbox's root, which is read-only")
	if err := uploading(t, d.Client, id, "a/b", "", file("f", "x", 0o600)); err != nil {
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
		if err := uploading(t, d.Client, id, "/", "7:8", file("tmp/have/"+state+"/b/c", "1", 0o600), file("tmp/have/"+state+"/b/d", "2", 0o600), file("tmp/link/"+state+"2/x", "3", 0o600)); err != nil {
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
			stop(t, d, id)
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
	upload(t, d, id, "x", archive(t, file("f", "x", 0o600)))
	if _, out, _ := d.Exec(id, "cat", "x/f"); out != "x" {
		t.Errorf("inside: %q", out)
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
	var entries []tarEntry
	for i := range n {
		entries = append(entries, file(fmt.Sprintf("%02d/%04d", i%20, i), fmt.Sprint(i), 0o644))
	}
	begun := time.Now()
	if resp := upload(t, d, id, "many", archive(t, entries...)); resp.Files != uint64(n) {
		t.Errorf("written: %v", resp)
	}
	up := time.Since(begun)
	request := &agboxv1.ListFilesRequest{SandboxId: id, Path: "many", Recursive: true}
	begun = time.Now()
	lines, cut := list(t, d, request)
	listed := time.Since(begun)
	if len(lines) != n+20 || cut {
		t.Errorf("%d files, cut off: %v", len(lines), cut)
	}
	begun = time.Now()
	if got := download(t, d, id, "many"); len(got) != n+20+1 || got["many/19/0999"].content != "999" {
		t.Errorf("%d files came back", len(got))
	}
	down := time.Since(begun)
	begun = time.Now()
	stat(t, d, id, "many/00/0000")
	t.Logf("upload %v, list %v, download %v, stat %v", up, listed, down, time.Since(begun))
	stop(t, d, id)
	begun = time.Now()
	if again, _ := list(t, d, request); len(again) != len(lines) {
		t.Errorf("%d files when it is stopped", len(again))
	}
	t.Logf("list of the stopped one %v", time.Since(begun))
}

// endless is a tar stream of one file that never ends by itself.
func endless() io.Reader {
	var head bytes.Buffer
	tar.NewWriter(&head).WriteHeader(&tar.Header{Name: "endless", Size: 1 << 32, Mode: 0o644})
	return io.MultiReader(&head, rand.NewChaCha8([32]byte{}))
}

// TestUploadGivenUp: a client that leaves in the middle, and a delete that begins there, leave a sandbox that can be used.
func TestUploadGivenUp(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	begin := func(ctx context.Context, rest io.Reader) <-chan error {
		started := make(chan struct{})
		failed := make(chan error, 1)
		go func() {
			all := endless()
			_, err := d.UploadFiles(ctx, &agboxv1.UploadFilesStart{SandboxId: id, Path: "/tmp"},
				io.MultiReader(io.LimitReader(all, 8<<20), signalReader{started}, rest, all))
			failed <- err
		}()
		select {
		case <-started:
		case err := <-failed:
			t.Fatal(err)
		}
		return failed
	}
	ctx, leave := context.WithCancel(t.Context())
	failed := begin(ctx, blockedReader{ctx})
	leave()
	if err := <-failed; err == nil {
		t.Error("the upload went well")
	}
	if _, err := d.RemoveFile(t.Context(), &agboxv1.RemoveFileRequest{SandboxId: id, Path: "/tmp/endless"}); err != nil {
		t.Error(err)
	}
	failed = begin(t.Context(), strings.NewReader(""))
	stop(t, d, id)
	refused(t, <-failed, codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "", "the transfer was cut off by the stop of sandbox "+id)
	d.Delete(id)
}

type signalReader struct{ reached chan struct{} }

func (r signalReader) Read([]byte) (int, error) { close(r.reached); return 0, io.EOF }

type blockedReader struct{ ctx context.Context }

func (r blockedReader) Read([]byte) (int, error) { <-r.ctx.Done(); return 0, context.Cause(r.ctx) }

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
	got := download(t, d, id, "/in")
	if len(got) != 7 || got["in/held"].content != "mine" || got["in/b"].Linkname != "in/a" || got["in/fifo"].Typeflag != tar.TypeFifo || got["in/link"].Linkname != "a" {
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
	refused(t, err, codes.FailedPrecondition, "FILE_REFUSED", "path", `"/in/held" is held by a process`)
	works(t, d, id)

	// The accounts are looked at for an upload, and may be held as well.
	swap := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, User: "0", Command: []string{"ln", "-sf", "/in/held", "/etc/passwd"}})
	if end := d.ExecEnd(id, swap.ExecId); end.ExitCode != 0 {
		t.Fatal(end)
	}
	_, err = d.UploadFiles(t.Context(), &agboxv1.UploadFilesStart{SandboxId: id, Path: "/tmp"}, bytes.NewReader(archive(t)))
	refused(t, err, codes.FailedPrecondition, "FILE_REFUSED", "path", `"/in/held" is held by a process`)
	stop(t, d, id)
}
