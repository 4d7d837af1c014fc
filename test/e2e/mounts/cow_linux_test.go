package mounts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestCopyOnWriteSources: a layer lies over a tmpfs and over an overlay; over an overlay of an overlay, and over a directory
// with a mount point in it, there is none, and a person is told why.
func TestCopyOnWriteSources(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	memory := filepath.Join(t.TempDir(), "memory")
	if err := os.Mkdir(memory, 0o755); err != nil {
		t.Fatal(err)
	}
	servertest.MountTmpfs(t, memory)
	servertest.WriteTree(t, memory, map[string]string{"file": "in memory\n"})
	cow := func(source string) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Image: d.Image, Mounts: []*agboxv1.MountSpec{{Source: source, Target: "/workspace", Mode: "cow"}}}
	}
	_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: cow(filepath.Dir(memory))})
	servertest.Refused(t, err, codes.InvalidArgument, "MOUNT_COW_UNSUPPORTED", "create_spec.mounts[0].source", `memory" is mounted in `, "mount each of the two by itself")

	first := d.Create(cow(memory))
	if got := asRoot(t, d, first, "cat file; echo mine >file; cat file"); got != "in memory\nmine\n" {
		t.Errorf("over a tmpfs: %q", got)
	}
	overlay := mountOverlay(t, memory)
	second := d.Create(cow(overlay))
	if got := asRoot(t, d, second, "echo x >>file; cat file"); got != "in memory\nx\n" {
		t.Errorf("over an overlay: %q", got)
	}
	created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: cow(mountOverlay(t, overlay))})
	if err != nil {
		t.Fatal(err)
	}
	events := d.Await(created.Sandbox.SandboxId, agboxv1.EventType_SANDBOX_FAILED)
	last := events[len(events)-1].GetSandboxPhase()
	if last.ErrorCode != "MOUNT_COW_FAILED" || !strings.Contains(last.ErrorMessage, "or an overlay of overlays: mount it read-only or writable") {
		t.Errorf("over an overlay of an overlay: %v", last)
	}
	noLayers(t, d, created.Sandbox.SandboxId)
}

// mountOverlay mounts an empty layer over the directory, and returns where.
func mountOverlay(t *testing.T, over string) string {
	t.Helper()
	top := t.TempDir()
	for _, name := range []string{"upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(top, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	merged := filepath.Join(top, "merged")
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", over, top, top)
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		servertest.SkipDisk(t, err)
	}
	t.Cleanup(func() { unix.Unmount(merged, unix.MNT_DETACH) })
	return merged
}
