package dockerrt_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/network"
	"go.uber.org/goleak"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/dockerrt"
	"github.com/agbox-dev/agbox/dockerrt/dockertest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
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

func ignore(lifecycle.Command) {}

// TestObjects: labels, names and places are the contract's, a second daemon on the same engine sees nothing of them,
// and a removal leaves nothing but the history.
func TestObjects(t *testing.T) {
	engine := dockertest.Engine(t)
	defer engine.Close()
	d, dir := open(t, "instance-one")
	other, _ := open(t, "instance-two")
	ctx := context.Background()
	const id = "objects-1"
	spec := &agboxv1.CreateSpec{Image: dockertest.TinyImage(t, engine, dockertest.Busybox), Labels: map[string]string{"team": "a"}}
	if _, err := d.Create(ctx, id, spec, ignore); err != nil {
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
	net, err := engine.NetworkInspect(ctx, "agbox-net-"+id, network.InspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, labels := range map[string]map[string]string{"primary": primary.Config.Labels, "network": net.Labels} {
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
	if err := other.Conflict(ctx, id); !errors.Is(err, actors.ErrConflict) {
		t.Errorf("another daemon sees no conflict: %v", err)
	}
	if found, err := d.Inventory(ctx); err != nil || !found.Running[id] || len(found.Histories) != 1 {
		t.Errorf("its own daemon finds %v, %v", found, err)
	}
	if seen, err := d.Observe(ctx, id, spec); err != nil || !seen.Alive {
		t.Errorf("the sandbox is %v, %v", seen, err)
	}

	if _, err := d.Create(ctx, id, spec, ignore); err != nil {
		t.Errorf("a create that is repeated after a crash: %v", err)
	}
	if err := d.Remove(ctx, id); err != nil {
		t.Fatal(err)
	}
	dockertest.Leftovers(t, engine, id)
	if _, err := os.Stat(filepath.Join(dir, "run", id)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's directory is still there: %v", err)
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
	engine := dockertest.Engine(t)
	defer engine.Close()
	d, dir := open(t, "instance-three")
	missing := filepath.Join(dir, "missing")
	const id = "failed-1"
	_, err := d.Create(context.Background(), id, &agboxv1.CreateSpec{
		Image:  dockertest.TinyImage(t, engine, dockertest.Busybox),
		Mounts: []*agboxv1.MountSpec{{Source: missing, Target: "/missing"}},
	}, ignore)
	if err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("a mount that is gone gives %v", err)
	}
	dockertest.Leftovers(t, engine, id)
}

func TestNoEngine(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "docker.sock")
	_, err := dockerrt.New(t.Context(), dockerrt.Config{Host: "unix://" + socket, Pool: netip.MustParsePrefix("10.0.0.0/24"), SubnetBits: 28},
		slog.New(slog.NewTextHandler(io.Discard, nil)))
	if !errors.Is(err, actors.ErrUnreachable) || !strings.Contains(err.Error(), socket) || !strings.Contains(err.Error(), "start it") {
		t.Errorf("got %v", err)
	}
}
