package mounts_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

const sourceChanged = "MOUNT_SOURCE_CHANGED"

// swap puts a link to elsewhere in path's place, and returns what takes that back.
func swap(t *testing.T, path, elsewhere string) (back func()) {
	t.Helper()
	if err := os.Rename(path, path+".away"); err != nil {
		t.Error(err)
	}
	if err := os.Symlink(elsewhere, path); err != nil {
		t.Error(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
		if err := os.Rename(path+".away", path); err != nil {
			t.Error(err)
		}
	}
}

// refusedToStart fails the test unless the sandbox becomes FAILED, because of a source, and does not run.
func refusedToStart(t *testing.T, d *servertest.Daemon, id string, words ...string) {
	t.Helper()
	failed := servertest.FailureOf(t, d, id)
	if failed.ErrorCode != sourceChanged {
		t.Errorf("FAILED says %v", failed)
	}
	for _, text := range append(words, "fork the sandbox") {
		if !strings.Contains(failed.ErrorMessage, text) {
			t.Errorf("FAILED says %q, without %q", failed.ErrorMessage, text)
		}
	}
	for _, c := range servertest.ContainersOf(t, d, id) {
		if c.State == "running" {
			t.Errorf("%s runs", c.Names)
		}
	}
}

// TestSwappedSource: inside, a source is exchanged for a link to the host's root. Whatever starts the sandbox again, it does
// not get that.
func TestSwappedSource(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	attacked := func(spec *agboxv1.CreateSpec) (id, source string) {
		dirs := servertest.OpenDirs(t, "p", "p/data")
		spec.Mounts = []*agboxv1.MountSpec{{Source: dirs[0], Target: "/workspace/p", Writable: true}, {Source: dirs[1], Target: "/data"}}
		id = d.Create(spec)
		if end, _, stderr := d.Exec(id, "sh", "-c", "cd p && mv data d && ln -s / data"); end.ExitCode != 0 {
			t.Fatalf("the attack: %v, %s", end, stderr)
		}
		if err := servertest.Uploading(t, d.Client, id, "/data", "", servertest.File("f", "x", 0o600)); err == nil { // which the sandbox has read-only, whatever the path means now
			t.Error("an upload went where the sandbox cannot write")
		}
		return id, dirs[1]
	}
	resumed, source := attacked(&agboxv1.CreateSpec{})
	restarted, _ := attacked(&agboxv1.CreateSpec{
		User: "agbox", Command: []string{"sh", "-c", "mkfifo /tmp/end && read line </tmp/end; exit 1"},
		RestartPolicy: &agboxv1.RestartPolicy{Mode: "on-failure", MaxRestarts: 1, Backoff: durationpb.New(1)},
	})
	servertest.StopSandbox(t, d, resumed)
	stream, err := d.DownloadFiles(t.Context(), &agboxv1.DownloadFilesRequest{SandboxId: resumed, Path: "/data/etc/passwd"})
	if err == nil {
		_, err = io.Copy(io.Discard, stream)
		stream.Close()
	}
	servertest.Refused(t, err, codes.FailedPrecondition, "FILE_REFUSED", "path", `"`+source+`" is or goes through a symbolic link now`)
	d.Restart()
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: resumed}); err != nil {
		t.Fatal(err)
	}
	d.Begin(&agboxv1.CreateExecRequest{SandboxId: restarted, Command: []string{"sh", "-c", "echo > /tmp/end"}})
	refusedToStart(t, d, resumed, `"`+source+`" is or goes through a symbolic link now`)
	refusedToStart(t, d, restarted, "symbolic link")
}

// TestSourceChangedBeforeUse: what a lazy sandbox mounts and copies is what was accepted, or it is not made. Put back, it is.
func TestSourceChangedBeforeUse(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	dirs := servertest.OpenDirs(t, "mounted", "copied", "other")
	servertest.WriteTree(t, dirs[1], map[string]string{"file": "copied\n"})
	id := servertest.Lazily(t, d, &agboxv1.CreateSpec{Image: d.Image, Mounts: []*agboxv1.MountSpec{{Source: dirs[0], Target: "/data"}},
		Copies: []*agboxv1.CopySpec{{Source: dirs[1], Target: "/copy"}}})
	use := func(words string) {
		t.Helper()
		_, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}})
		servertest.Refused(t, err, codes.FailedPrecondition, "SANDBOX_NOT_READY", "", words)
		got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
		if err != nil || got.Sandbox.State != servertest.Dormant || got.Sandbox.ErrorCode != sourceChanged {
			t.Errorf("after a source has changed: %v, %v", got, err)
		}
	}
	back := swap(t, dirs[0], "/")
	use("symbolic link")
	back()
	if err := os.Rename(dirs[0], dirs[0]+".first"); err != nil { // by the person
		t.Fatal(err)
	}
	if err := os.Mkdir(dirs[0], 0o777); err != nil {
		t.Fatal(err)
	}
	use("is another directory than the one that was accepted")
	if err := os.Remove(dirs[0]); err != nil {
		t.Fatal(err)
	}
	use("does not exist any more")
	if err := os.Rename(dirs[0]+".first", dirs[0]); err != nil {
		t.Fatal(err)
	}
	back = swap(t, dirs[1], "/etc")
	use("symbolic link")
	back()
	if end, stdout, stderr := d.Exec(id, "cat", "/copy/file"); end.ExitCode != 0 || stdout != "copied\n" {
		t.Errorf("with everything as it was: %v %q %s", end, stdout, stderr)
	}
}

// TestSourceSwappedAtTheStart: a link takes the source's place between our look and the engine's. The engine follows it, and
// nothing of the sandbox has run when that is seen.
func TestSourceSwappedAtTheStart(t *testing.T) {
	t.Parallel()
	dirs := servertest.OpenDirs(t, "p", "victim")
	var once sync.Once
	host, _ := servertest.Proxied(t, func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/start") {
			once.Do(func() { swap(t, dirs[0], dirs[1]) })
		}
		return false
	})
	d := servertest.Start(t, func(c *dockerrt.Config) { c.Host = host })
	socket := strings.TrimPrefix(host, "unix://")
	_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{
		Image: d.Image, Mounts: []*agboxv1.MountSpec{{Source: filepath.Dir(socket), Target: "/data"}}}})
	servertest.Refused(t, err, codes.InvalidArgument, "SOURCE_PROTECTED", "create_spec.mounts[0].source", "contains the container engine's socket ("+socket+")")
	created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{
		Image: d.Image, WorkingDir: "/data/made", Command: []string{"sh", "-c", "touch /data/ran; sleep 300"},
		Mounts: []*agboxv1.MountSpec{{Source: dirs[0], Target: "/data", Writable: true}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	refusedToStart(t, d, created.Sandbox.SandboxId)
	if left, err := os.ReadDir(dirs[1]); err != nil || len(left) != 0 {
		t.Errorf("the sandbox has written %v where it was led to, %v", left, err)
	}
	dockertest.Leftovers(t, d.Engine, created.Sandbox.SandboxId)
}

// TestLayerOverSwappedSource: a link is in the place of a copy-on-write mount's source only while the engine looks. The layer
// lies over what was accepted all the same.
func TestLayerOverSwappedSource(t *testing.T) {
	t.Parallel()
	dirs := servertest.OpenDirs(t, "p", "victim")
	servertest.WriteTree(t, dirs[0], map[string]string{"file": "accepted\n"})
	servertest.WriteTree(t, dirs[1], map[string]string{"file": "secret\n"})
	var swapping sync.Mutex
	var undo func()
	swapped := false
	host, _ := servertest.Proxied(t, func(_ http.ResponseWriter, r *http.Request) bool {
		swapping.Lock()
		defer swapping.Unlock()
		switch {
		case strings.HasSuffix(r.URL.Path, "/start") && !swapped:
			undo, swapped = swap(t, dirs[0], dirs[1]), true
		case strings.HasSuffix(r.URL.Path, "/json") && undo != nil: // the container has started
			undo()
			undo = nil
		}
		return false
	})
	d := servertest.Start(t, func(c *dockerrt.Config) { c.Host = host })
	id := d.Create(&agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{{Source: dirs[0], Target: "/data", Mode: "cow"}}})
	if end, stdout, stderr := d.Exec(id, "cat", "/data/file"); stdout != "accepted\n" {
		t.Errorf("the layer lies over %q: %v, %s", stdout, end, stderr)
	}
}

// TestSourceMadeAnew: a person has made the directory anew while the sandbox was stopped. It does not start, and a fork has its
// files, and the new directory.
func TestSourceMadeAnew(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	source := servertest.OpenDirs(t, "source")[0]
	id := d.Create(&agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{{Source: source, Target: "/data"}}})
	servertest.Sh(t, d, id, "echo kept > /tmp/file")
	servertest.StopSandbox(t, d, id)
	if err := os.Remove(source); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(source, 0o777); err != nil {
		t.Fatal(err)
	}
	servertest.WriteTree(t, source, map[string]string{"new": "new\n"})
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	refusedToStart(t, d, id, `"`+source+`" is another directory than the one that was accepted`)
	forked, err := d.ForkSandbox(t.Context(), &agboxv1.ForkSandboxRequest{SandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	d.Await(forked.Sandbox.SandboxId, agboxv1.EventType_SANDBOX_READY)
	if got := servertest.Sh(t, d, forked.Sandbox.SandboxId, "cat /tmp/file /data/new"); got != "kept\nnew\n" {
		t.Errorf("the fork has %q", got)
	}
}
