package dockerrt_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/network"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt"
	"github.com/agbox-dev/agbox/hostpath"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, instance string) (*dockerrt.Docker, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return reopen(t, instance, dir), dir
}

// reopen is open on the directory of a runtime that was closed.
func reopen(t *testing.T, instance, dir string) *dockerrt.Docker {
	t.Helper()
	d, err := dockerrt.New(t.Context(), dockerrt.Config{
		Instance: instance, DataDir: dir, InitPath: dockertest.InitBinary(t),
		Pool: netip.MustParsePrefix("10.217.0.0/20"), SubnetBits: 28,
		CreateConcurrency: 1, StopGrace: time.Second, PID: os.Getpid(), Started: time.Now(),
	}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func ignore(runtime.Progress) {}

// accepted is a mount of a directory of its own, as the server takes it down.
func accepted(t *testing.T, target string, writable bool, mode string) *agboxv1.MountSpec {
	t.Helper()
	source, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	identity, err := hostpath.Identify(source)
	if err != nil {
		t.Fatal(err)
	}
	return &agboxv1.MountSpec{Source: source.Name(), Target: target, Writable: writable, Mode: mode, Accepted: identity.Message()}
}

// TestObjects: labels, names and places are the contract's, a second daemon on the same engine sees nothing of them,
// and a removal leaves nothing but the history.
func TestObjects(t *testing.T) {
	t.Parallel()
	engine := dockertest.Engine(t)
	defer engine.Close()
	d, dir := open(t, "instance-one")
	other, _ := open(t, "instance-two")
	ctx := context.Background()
	const id = "objects-1"
	spec := &agboxv1.CreateSpec{
		Image: dockertest.TinyImage(t, engine, dockertest.Busybox), Labels: map[string]string{"team": "a"},
		Envs: map[string]string{"A": "1", "B": "x=y"}, Command: []string{"sleep", "300"}, User: "agbox", WorkingDir: "/tmp", Hostname: "named",
		Mounts: []*agboxv1.MountSpec{
			accepted(t, "/data", true, ""), accepted(t, "/layered", false, "cow"), accepted(t, "/read", false, ""), {Source: t.TempDir(), Target: "/old"},
		},
		Ports:    []*agboxv1.PortSpec{{ContainerPort: 80, HostIp: "127.0.0.1", Protocol: "tcp"}},
		CpuLimit: 0.5, MemoryLimit: 64 << 20, PidsLimit: 100, ShmSize: 1 << 20, Tmpfs: []*agboxv1.TmpfsSpec{{Target: "/scratch", Size: 1 << 20}},
		CapAdd: []string{"NET_RAW"}, ReadOnlyRoot: true, ExtraHosts: map[string]string{"there": "192.0.2.1"}, IdleTtl: durationpb.New(0),
	}
	if _, err := d.Create(ctx, id, "1", spec, ignore); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Remove(ctx, id) })

	const namespace = "io.github.1996fanrui.agents-sandbox"
	want := map[string]string{
		namespace + ".sandbox-id": id, namespace + ".user.team": "a",
		"com.docker.compose.project": "agbox", "com.docker.compose.service": id,
	}
	primary, err := engine.ContainerInspect(ctx, "agbox-primary-"+id)
	if err != nil {
		t.Fatal(err)
	}
	made, err := engine.NetworkInspect(ctx, "agbox-net-"+id, network.InspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, labels := range map[string]map[string]string{"primary": primary.Config.Labels, "network": made.Labels} {
		if labels[namespace+".component"] != name {
			t.Errorf("the %s is labelled %v", name, labels)
		}
		for key, value := range want {
			if labels[key] != value {
				t.Errorf("label %s of the %s is %q, want %q", key, name, labels[key], value)
			}
		}
	}
	for path, mode := range map[string]os.FileMode{
		"exec-logs": 0o700, "exec-logs/" + id: 0o755, "exec-results": 0o700, "run": 0o700, "operation-logs": 0o700, "operation-logs/" + id: 0o700,
	} {
		if info, err := os.Stat(filepath.Join(dir, path)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s has mode %v, %v; want %v", path, info.Mode(), err, mode)
		}
	}

	if found, err := other.Inventory(ctx); err != nil || len(found.Objects) != 0 {
		t.Errorf("another daemon counts %v, %v as its own", found, err)
	}
	if err := other.Remove(ctx, id); err != nil {
		t.Errorf("another daemon's removal: %v", err)
	}
	if err := other.Conflict(ctx, id); !errors.Is(err, runtime.ErrConflict) {
		t.Errorf("another daemon sees no conflict: %v", err)
	}
	if found, err := d.Inventory(ctx); err != nil || len(found.Histories) != 1 {
		t.Errorf("its own daemon finds %v, %v", found, err)
	}
	if seen, err := d.Observe(ctx, id, spec); err != nil || !seen.Alive {
		t.Errorf("the sandbox is %v, %v", seen, err)
	}

	described, err := d.Describe(ctx, id)
	if err != nil || described.Phase != agboxv1.SandboxState_SANDBOX_STATE_READY || time.Since(described.CreatedAt) > time.Hour || len(described.Ports) != 1 {
		t.Errorf("it is described as %v, %v", described, err)
	}
	if !proto.Equal(described.Spec, spec) {
		t.Errorf("what it was asked to be is put together as\n%v, it was\n%v", described.Spec, spec)
	}
	if err := d.Conflict(ctx, id); !errors.Is(err, runtime.ErrConflict) || !strings.Contains(err.Error(), "--adopt") {
		t.Errorf("a new sandbox in its place: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "exec-results", id, "exec-1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if execs, err := d.ExecIDs(id); err != nil || !slices.Equal(execs, []string{"exec-1"}) {
		t.Errorf("its execs are %v, %v", execs, err)
	}
	if err := d.ForgetExec(id, "exec-1"); err != nil {
		t.Error(err)
	}
	if execs, err := d.ExecIDs(id); err != nil || len(execs) != 0 {
		t.Errorf("then its execs are %v, %v", execs, err)
	}

	if _, err := d.Create(ctx, id, "1", spec, ignore); err != nil {
		t.Errorf("a create that is repeated after a crash: %v", err)
	}
	if err := d.Remove(ctx, id); err != nil {
		t.Fatal(err)
	}
	dockertest.Leftovers(t, engine, id)
	if _, err := os.Stat(filepath.Join(dir, "run", id)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's directory is still there: %v", err)
	}
	if found, err := d.Describe(ctx, id); err != nil || found.Phase != agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED || found.CreatedAt.IsZero() {
		t.Errorf("then it is described as %v, %v", found, err)
	}
	if err := errors.Join(d.Remove(ctx, id), d.Forget(id)); err != nil {
		t.Errorf("a removal of what is gone: %v", err)
	}
	for _, parent := range []string{"exec-logs", "exec-results", "operation-logs"} {
		if left, _ := os.ReadDir(filepath.Join(dir, parent)); len(left) != 0 {
			t.Errorf("%s still holds %v", parent, left)
		}
	}
}

// TestFailedStart: a create that the engine refuses says why, and leaves nothing.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	engine := dockertest.Engine(t)
	defer engine.Close()
	d, dir := open(t, "instance-three")
	missing := filepath.Join(dir, "missing")
	const id = "failed-1"
	_, err := d.Create(context.Background(), id, "1", &agboxv1.CreateSpec{
		Image:  dockertest.TinyImage(t, engine, dockertest.Busybox),
		Mounts: []*agboxv1.MountSpec{{Source: missing, Target: "/missing"}},
	}, ignore)
	if err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("a mount that is gone gives %v", err)
	}
	dockertest.Leftovers(t, engine, id)
}

func TestNoEngine(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "docker.sock")
	_, err := dockerrt.New(t.Context(), dockerrt.Config{Host: "unix://" + socket, Pool: netip.MustParsePrefix("10.0.0.0/24"), SubnetBits: 28},
		slog.New(slog.NewTextHandler(io.Discard, nil)))
	if !errors.Is(err, runtime.ErrUnreachable) || !strings.Contains(err.Error(), socket) || !strings.Contains(err.Error(), "start it") {
		t.Errorf("got %v", err)
	}
}

// TestNoPermission: an engine that this user may not use is told from one that is not there.
func TestNoPermission(t *testing.T) {
	const variable = "AGBOX_TEST_FORBIDDEN_SOCKET"
	if socket := os.Getenv(variable); socket != "" {
		_, err := dockerrt.New(t.Context(), dockerrt.Config{Host: "unix://" + socket, Pool: netip.MustParsePrefix("10.0.0.0/24"), SubnetBits: 28},
			slog.New(slog.NewTextHandler(io.Discard, nil)))
		if !errors.Is(err, runtime.ErrUnreachable) {
			t.Error("not ErrUnreachable")
		}
		fmt.Println(err)
		return
	}
	if os.Getuid() != 0 {
		skiplog.Skip(t, "needs root: the test is run again as somebody else")
	}
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "docker.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	program := filepath.Join(dir, "test")
	content, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = errors.Join(os.WriteFile(program, content, 0o755), os.Chmod(dir, 0o755), os.Chmod(socket, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	again := exec.Command(program, "-test.run=^TestNoPermission$", "-test.v")
	again.Dir, again.Env = dir, []string{variable + "=" + socket}
	again.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	said, err := again.CombinedOutput()
	if err != nil || !strings.Contains(string(said), socket) || !strings.Contains(string(said), "group docker") || strings.Contains(string(said), "systemctl start") {
		t.Errorf("somebody else is told %s, %v", said, err)
	}
}
