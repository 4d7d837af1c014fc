package files_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/servertest"
)

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
	link := func(kind byte, name, target string) servertest.Entry {
		return servertest.Entry{Header: tar.Header{Name: name, Typeflag: kind, Linkname: target}}
	}
	f := servertest.File("f", "x", 0o644)
	for _, c := range []struct {
		dir, owner           string
		entry                servertest.Entry
		code                 codes.Code
		reason, field, words string
	}{
		{"/tmp/up", "", servertest.File("../x", "", 0), codes.InvalidArgument, "PATH_ESCAPES", "data", `"../x", which contains ".."`},
		{"/tmp/up", "", servertest.File("a/../../x", "", 0), codes.InvalidArgument, "PATH_ESCAPES", "data", `which contains ".."`},
		{"/tmp/up", "", servertest.File("/etc/x", "", 0), codes.InvalidArgument, "PATH_ESCAPES", "data", `"/etc/x", an absolute name`},
		{"/tmp/up", "", link(tar.TypeLink, "x", "/etc/passwd"), codes.InvalidArgument, "PATH_ESCAPES", "data", "an absolute name"},
		{"/tmp/up", "", link(tar.TypeLink, "x", "../../etc/passwd"), codes.InvalidArgument, "PATH_ESCAPES", "data", `which contains ".."`},
		{"/tmp/up", "", link(tar.TypeLink, "x", "other"), codes.InvalidArgument, "TAR_ENTRY_REFUSED", "data", `the hard link "x" to "other", which is no file that came before it`},
		{"/tmp/up", "", link(tar.TypeChar, "x", ""), codes.InvalidArgument, "TAR_ENTRY_REFUSED", "data", `"x", a device; leave it out`},
		{"/tmp/up", "", link(tar.TypeFifo, "x", ""), codes.InvalidArgument, "TAR_ENTRY_REFUSED", "data", `"x", a named pipe; leave it out`},
		{"/tmp/up", "", servertest.File(".", "", 0), codes.InvalidArgument, "TAR_ENTRY_REFUSED", "data", "which is the directory itself"},
		{"", "", f, codes.InvalidArgument, "PATH_INVALID", "path", "no path is given"},
		{"/" + strings.Repeat("x", 4096), "", f, codes.InvalidArgument, "PATH_INVALID", "path", "shorten it"},
		{"/.agbox", "", f, codes.InvalidArgument, "PATH_RESERVED", "path", "which the sandbox needs for itself; choose another path"},
		{"/tmp/root", "", servertest.File(".agbox/init", "x", 0), codes.InvalidArgument, "PATH_RESERVED", "path", `lies in /.agbox`},
		{"/var/log/agents-sandbox", "", f, codes.InvalidArgument, "PATH_RESERVED", "path", "choose another path"},
		{"/tmp/none/x", "", f, codes.NotFound, "FILE_NOT_FOUND", "path", `goes through a link to "/none", which does not exist`},
		{"/etc/passwd", "", f, codes.FailedPrecondition, "FILE_NOT_A_DIRECTORY", "path", `"/etc/passwd" is not a directory`},
		{"/etc/passwd/x", "", f, codes.FailedPrecondition, "FILE_NOT_A_DIRECTORY", "path", `"/etc/passwd" is not a directory`},
		{"/ro/new", "", f, codes.FailedPrecondition, "FILE_READ_ONLY", "path", `"/ro/new" lies in a part of the sandbox that can only be read`},
		{"/tmp/ro", "", f, codes.FailedPrecondition, "FILE_READ_ONLY", "path", "make its mount writable"},
		{"/tmp/root", "", servertest.File("ro/x", "x", 0), codes.FailedPrecondition, "FILE_READ_ONLY", "path", "can only be read"},
		{"/tmp", "", servertest.File("full", "x", 0), codes.FailedPrecondition, "FILE_REFUSED", "path", "is a directory, which no file takes the place of; remove it first"},
		{"/tmp/up", "nobody-there", f, codes.FailedPrecondition, "OWNER_UNKNOWN", "owner", `user "nobody-there" is not in /etc/passwd`},
		{"/tmp/up", "0:nobody-there", f, codes.FailedPrecondition, "OWNER_UNKNOWN", "owner", `group "nobody-there" is not in /etc/group`},
		{"/tmp/up", "a b", f, codes.InvalidArgument, "USER_INVALID", "owner", `"a b" is no user`},
	} {
		servertest.Refused(t, servertest.Uploading(t, d.Client, id, c.dir, c.owner, c.entry), c.code, c.reason, c.field, c.words)
	}
	half := servertest.Archive(t, servertest.File("big", strings.Repeat("x", 5000), 0))[:3000]
	for stream, words := range map[string]string{strings.Repeat("no tar", 1000): "it is not a tar stream", string(half): "ends in the middle"} {
		_, err := d.UploadFiles(t.Context(), &agboxv1.UploadFilesStart{SandboxId: id, Path: "/tmp/half"}, strings.NewReader(stream))
		servertest.Refused(t, err, codes.InvalidArgument, "TAR_INVALID", "data", words)
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
	if err := servertest.Uploading(t, d.Client, id, "/tmp/etc", "", servertest.File("mark", "x", 0o644)); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat("/etc/mark"); err == nil {
		t.Error("the host was written to")
	}
	if f := stat(t, d, id, "/etc/mark"); f.Uid != 1000 {
		t.Errorf("it is %v", f)
	}
	if err := servertest.Uploading(t, d.Client, id, "rw/sub", "", servertest.File("mark", "x", 0o644)); err != nil {
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
		servertest.Refused(t, remove(p), codes.InvalidArgument, "PATH_RESERVED", "path", words)
	}
	for _, p := range []string{"/ro", "/workspace", "/tmp/root/workspace/rw", "/mem", "/etc", "/var"} {
		servertest.Refused(t, remove(p), codes.FailedPrecondition, "FILE_MOUNTED", "path", "the mount point")
	}
	servertest.Refused(t, remove("/ro/file"), codes.FailedPrecondition, "FILE_READ_ONLY", "path", "can only be read")
	if text, err := os.ReadFile(path.Join(outside, "file")); string(text) != "host" {
		t.Errorf("the host's file has %q, %v", text, err)
	}
	_, err = d.ListFiles(t.Context(), &agboxv1.ListFilesRequest{SandboxId: id, Path: "/etc/passwd"})
	servertest.Refused(t, err, codes.FailedPrecondition, "FILE_NOT_A_DIRECTORY", "path", "is not a directory")
	_, err = d.StatFile(t.Context(), &agboxv1.StatFileRequest{SandboxId: id, Path: "/tmp/\x00"})
	servertest.Refused(t, err, codes.InvalidArgument, "PATH_INVALID", "path", "NUL byte; remove it")
	downloading := func(p string) error {
		stream, err := d.DownloadFiles(t.Context(), &agboxv1.DownloadFilesRequest{SandboxId: id, Path: p})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		_, err = stream.Read(make([]byte, 1))
		return err
	}
	// What is in memory is there as long as it runs.
	servertest.Upload(t, d, id, "/tmp/mem/x", servertest.Archive(t, f))
	if got := servertest.Download(t, d, id, "/tmp/root/mem/x"); got["x/f"].Content != "x" {
		t.Errorf("the memory has %v", got)
	}
	for _, p := range []string{"/proc/1", "/tmp/root/dev/null"} {
		servertest.Refused(t, downloading(p), codes.FailedPrecondition, "FILE_IN_MEMORY", "path", "use an exec, or another path")
	}

	servertest.StopSandbox(t, d, id)
	for _, p := range []string{"/etc/passwd", "/none"} {
		_, err = d.ListFiles(t.Context(), &agboxv1.ListFilesRequest{SandboxId: id, Path: p})
		if p == "/none" {
			servertest.Refused(t, err, codes.NotFound, "FILE_NOT_FOUND", "path", `"/none" does not exist in the sandbox`)
		} else {
			servertest.Refused(t, err, codes.FailedPrecondition, "FILE_NOT_A_DIRECTORY", "path", "is not a directory")
		}
	}
	servertest.Refused(t, downloading("/mem/x"), codes.FailedPrecondition, "FILE_IN_MEMORY", "path", "in the memory of the sandbox")
	for _, c := range []struct{ dir, reason, words string }{
		{"/mem", "FILE_IN_MEMORY", "in the memory of the sandbox"}, {"/tmp/mem/x", "FILE_IN_MEMORY", `"/mem/x" lies in /mem`},
		{"/ro/new", "FILE_READ_ONLY", "lies in the mount /ro, which is read-only"}, {"/etc/passwd/x", "FILE_NOT_A_DIRECTORY", `goes through "/etc/passwd"`},
	} {
		servertest.Refused(t, servertest.Uploading(t, d.Client, id, c.dir, "", f), codes.FailedPrecondition, c.reason, "path", c.words)
	}
	notReady(t, remove("/etc/mark"), "is STOPPED: for this it has to run: resume it")
	d.Delete(id)
	_, err = d.StatFile(t.Context(), &agboxv1.StatFileRequest{SandboxId: id, Path: "/"})
	notReady(t, err, "is DELETED: its files can be reached while it is READY")
	_, err = d.StatFile(t.Context(), &agboxv1.StatFileRequest{SandboxId: "none", Path: "/"})
	servertest.Refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "")
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
	servertest.Refused(t, err, codes.InvalidArgument, "UPLOAD_MALFORMED", "start", words)
}

func notReady(t *testing.T, err error, words string) {
	t.Helper()
	refusal, ok := errors.AsType[*raw.Error](err)
	if !ok || refusal.Code != codes.FailedPrecondition || refusal.Reason != "SANDBOX_NOT_READY" || !strings.Contains(refusal.Message, words) || refusal.Metadata["sandbox_id"] == "" {
		t.Errorf("got %v, want SANDBOX_NOT_READY with %q", err, words)
	}
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
	watch := watchFiles(t, d, id, "/tmp", false)
	failed := begin(ctx, blockedReader{ctx})
	leave()
	if err := <-failed; err == nil {
		t.Error("the upload went well")
	}
	watch.until("removed") // what it has begun
	if got, _ := servertest.ListFiles(t, d, &agboxv1.ListFilesRequest{SandboxId: id, Path: "/tmp"}); len(got) > 0 {
		t.Errorf("the upload that was given up has left %q", got)
	}
	// Likewise a download.
	shell(t, d, id, "truncate -s 10G /tmp/hole")
	down, err := d.DownloadFiles(t.Context(), &agboxv1.DownloadFilesRequest{SandboxId: id, Path: "/tmp/hole"})
	if err == nil {
		_, err = io.CopyN(io.Discard, down, 8<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	down.Close()
	nothingInside(t, d, id)
	failed = begin(t.Context(), strings.NewReader(""))
	servertest.StopSandbox(t, d, id)
	servertest.Refused(t, <-failed, codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "", "the transfer was cut off by the stop of sandbox "+id)
	d.Delete(id)
}

type signalReader struct{ reached chan struct{} }

func (r signalReader) Read([]byte) (int, error) { close(r.reached); return 0, io.EOF }

type blockedReader struct{ ctx context.Context }

func (r blockedReader) Read([]byte) (int, error) { <-r.ctx.Done(); return 0, context.Cause(r.ctx) }
