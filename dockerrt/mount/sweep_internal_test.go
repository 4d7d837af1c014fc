package mount

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/paths"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// TestEmptyLayers: what only root could remove, a container does, and it leaves nothing of its own.
func TestEmptyLayers(t *testing.T) {
	docker := dockertest.Engine(t)
	defer docker.Close()
	dockertest.TinyImage(t, docker, dockertest.Busybox)
	dir := t.TempDir()
	api, err := engine.Connect(t.Context(), "", engine.Owner{Instance: "instance-sweep", PID: os.Getpid(), Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	ms := New(api, Config{DataDir: dir, InitPath: dockertest.InitBinary(t), Init: paths.Home + "/init"})
	const id = "sweep-1"
	closed := filepath.Join(dir, "layers", id, "0", "upper", "closed")
	if err := os.MkdirAll(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(closed, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	if err := ms.emptyLayers(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "layers", id)); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	dockertest.Leftovers(t, docker, id)
}
