package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/servertest"
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
	mountTmpfs(t, memory)
	write(t, memory, map[string]string{"file": "in memory\n"})
	cow := func(source string) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Image: d.Image, Mounts: []*agboxv1.MountSpec{{Source: source, Target: "/workspace", Mode: "cow"}}}
	}
	_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: cow(filepath.Dir(memory))})
	refused(t, err, codes.InvalidArgument, "MOUNT_COW_UNSUPPORTED", "create_spec.mounts[0].source", `memory" is mounted in `, "mount each of the two by itself")

	first := d.Create(cow(memory))
	if got := asRoot(t, d, first, "cat file; echo mine >file; cat file"); got != "in memory\nmine\n" {
		t.Errorf("over a tmpfs: %q", got)
	}
	primary, err := d.Engine.ContainerInspect(t.Context(), "agbox-primary-"+first)
	if err != nil {
		t.Fatal(err)
	}
	if primary.GraphDriver.Name != "overlay2" {
		t.Skipf("the engine's storage driver is %s", primary.GraphDriver.Name)
	}
	root := primary.GraphDriver.Data["MergedDir"]
	second := d.Create(cow(filepath.Join(root, "etc")))
	if got := asRoot(t, d, second, "echo x >>passwd; tail -1 passwd"); got != "x\n" {
		t.Errorf("over an overlay: %q", got)
	}
	volume := ""
	over, err := d.Engine.ContainerInspect(t.Context(), "agbox-primary-"+second)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range over.Mounts {
		if m.Destination == "/workspace" {
			volume = m.Source
		}
	}
	created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: cow(volume)})
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
