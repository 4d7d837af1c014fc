package dockerrt_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/volume"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// TestLayers: whatever of layer and volume a daemon that died got to is found by the next one and removed, a create that is
// repeated begins with an empty layer, one that fails leaves none, and a resume makes nothing anew.
func TestLayers(t *testing.T) {
	engine := dockertest.Engine(t)
	defer engine.Close()
	d, dir := open(t, "instance-layers")
	ctx := context.Background()
	const id = "layers-1"
	source := t.TempDir()
	spec := &agboxv1.CreateSpec{Image: dockertest.TinyImage(t, engine, dockertest.Busybox),
		Mounts: []*agboxv1.MountSpec{{Source: "/usr", Target: "/read"}, {Source: source, Target: "/workspace", Mode: "cow"}}}
	upper := filepath.Join(dir, "layers", id, "1", "upper")
	if err := os.MkdirAll(filepath.Join(upper, "of an earlier try"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(ctx, id, "1", spec, ignore); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Remove(ctx, id) })
	if left, err := os.ReadDir(upper); err != nil || len(left) != 0 {
		t.Errorf("the layer begins with %v, %v", left, err)
	}
	const name = "agbox-cow-" + id + ".1"
	made, err := engine.VolumeInspect(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	const namespace = "io.github.1996fanrui.agents-sandbox"
	if made.Labels[namespace+".sandbox-id"] != id || made.Labels[namespace+".component"] != "layer" {
		t.Errorf("the volume is labelled %v", made.Labels)
	}

	// What a daemon that died may have left of three creates.
	orphans := []string{"layers-2", "layers-3", "layers-4"}
	for _, orphan := range orphans[:2] {
		labels := map[string]string{}
		for key, value := range made.Labels {
			labels[key] = strings.ReplaceAll(value, id, orphan)
		}
		if _, err := engine.VolumeCreate(ctx, volume.CreateOptions{Name: "agbox-cow-" + orphan + ".0", Labels: labels}); err != nil {
			t.Fatal(err)
		}
	}
	for _, orphan := range orphans[1:] {
		if err := os.MkdirAll(filepath.Join(dir, "layers", orphan, "0", "upper", "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	next := reopen(t, "instance-layers", dir)
	found, err := next.Inventory(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, orphan := range orphans {
		if earlier, there := found.Objects[orphan]; !earlier || !there {
			t.Errorf("what is left of %s is not found: %v", orphan, found.Objects)
		}
		if err := next.Remove(ctx, orphan); err != nil {
			t.Error(err)
		}
		noLayers(t, dir, orphan)
		dockertest.Leftovers(t, engine, orphan)
	}

	if err := d.Stop(ctx, id, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(upper, upper+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Resume(ctx, id, "2", spec, ignore); err == nil || !strings.Contains(err.Error(), "the layer of /workspace: delete the sandbox and create it again") {
		t.Errorf("a sandbox without its layer resumes: %v", err)
	}
	if err := d.Remove(ctx, id); err != nil {
		t.Fatal(err)
	}
	noLayers(t, dir, id)
	dockertest.Leftovers(t, engine, id)

	broken := filepath.Join(t.TempDir(), "gone")
	spec.Mounts = append(spec.Mounts, &agboxv1.MountSpec{Source: broken, Target: "/x", Mode: "cow"})
	if _, err := d.Create(ctx, id, "1", spec, ignore); err == nil || !strings.Contains(err.Error(), broken) {
		t.Errorf("a source that is gone gives %v", err)
	}
	noLayers(t, dir, id)
	dockertest.Leftovers(t, engine, id)

	spec.Mounts = spec.Mounts[:2]
	if _, err := engine.VolumeCreate(ctx, volume.CreateOptions{Name: name}); err != nil {
		t.Fatal(err)
	}
	defer engine.VolumeRemove(ctx, name, true)
	if _, err := d.Create(ctx, id, "1", spec, ignore); err == nil || !strings.Contains(err.Error(), "is there already and not this sandbox's") {
		t.Errorf("a volume of somebody else gives %v", err)
	}
	if _, err := engine.VolumeInspect(ctx, name); err != nil {
		t.Errorf("a volume of somebody else was removed: %v", err)
	}
}

func noLayers(t *testing.T, dir, id string) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(dir, "layers", id)); !os.IsNotExist(err) {
		t.Errorf("the layers of sandbox %s are still there: %v", id, err)
	}
}
