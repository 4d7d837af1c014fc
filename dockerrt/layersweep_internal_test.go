package dockerrt

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/test/dockertest"
)

// TestEmptyLayers: what only root could remove, a container does, and it leaves nothing of its own.
func TestEmptyLayers(t *testing.T) {
	engine := dockertest.Engine(t)
	defer engine.Close()
	dockertest.TinyImage(t, engine, dockertest.Busybox)
	dir := t.TempDir()
	d, err := New(t.Context(), Config{Instance: "instance-sweep", DataDir: dir, InitPath: dockertest.InitBinary(t),
		Pool: netip.MustParsePrefix("10.217.16.0/20"), SubnetBits: 28, CreateConcurrency: 1, PID: os.Getpid(), Started: time.Now()},
		slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
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
	if err := d.emptyLayers(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "layers", id)); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	dockertest.Leftovers(t, engine, id)
}
