package dockerrt_test

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	dockerimage "github.com/docker/docker/api/types/image"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// commit makes an image of a container, as docker commit does; with "" it has no name.
func (s *site) commit(containerID, name string) string {
	s.t.Helper()
	made, err := s.engine.ContainerCommit(s.t.Context(), containerID, container.CommitOptions{Reference: name})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		s.engine.ImageRemove(context.Background(), made.ID, dockerimage.RemoveOptions{Force: true})
	})
	return made.ID
}

// TestInheritedLabels: what somebody made out of a container of ours has our labels, and is not ours: it is neither removed
// nor taken for a part of the sandbox, and does its work also as the image of one.
func TestInheritedLabels(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.start()
	ctx := t.Context()
	id := s.config.Instance
	spec := &agboxv1.CreateSpec{Image: dockertest.TinyImage(t, s.engine, dockertest.Busybox), Labels: map[string]string{"team": "a"},
		OptionalServices: []*agboxv1.ServiceSpec{{Name: "db", Image: dockertest.TinyImage(t, s.engine, dockertest.Busybox), Command: []string{"sleep", "1000"}}}}
	s.sandbox(d, id, spec)
	if err := d.StartService(ctx, id, spec, spec.OptionalServices[0], false); err != nil {
		t.Fatal(err)
	}
	primary := s.commit("agbox-primary-"+id, "")
	service := s.commit("agbox-svc-"+id+"-db", strings.ToLower(id)+"-db")
	theirs := []string{s.container(primary, ""), s.container(service, "another-"+id)}
	if seen, err := d.Observe(ctx, id, spec); err != nil || !seen.Alive || len(seen.Lost) > 0 {
		t.Errorf("beside containers of others it is %+v, %v", seen, err)
	}
	if found, err := d.Inventory(ctx); err != nil || len(found.Objects) == 0 {
		t.Errorf("beside containers of others the inventory is %+v, %v", found, err)
	}

	// A sandbox made from the image of a service has none of that service.
	copied := id + "-copy"
	s.sandbox(d, copied, &agboxv1.CreateSpec{Image: service})
	if err := d.Stop(ctx, copied, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Resume(ctx, copied, "2", &agboxv1.CreateSpec{Image: service}, ignore); err != nil {
		t.Errorf("a sandbox with a service's labels in its image is not resumed: %v", err)
	}
	kept, err := d.CreateSnapshot(ctx, wanted(copied, "Kept", &agboxv1.CreateSpec{Image: service}))
	if err != nil {
		t.Fatal(err)
	}
	labels, _ := config(t, s.engine, kept.Image)["Labels"].(map[string]any)
	for key, value := range labels {
		if strings.HasPrefix(key, namespace) && !strings.HasPrefix(key, namespace+"snapshot-") && value != "" {
			t.Errorf("the snapshot has label %s=%v", key, value)
		}
	}

	// Nor is an image ours that somebody made of a snapshot.
	built := s.commit(s.container(kept.Image, ""), "")
	d.Close()
	d = s.start()
	if _, err := d.Inventory(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.engine.ImageInspect(ctx, built); err != nil {
		t.Errorf("an image that was made of a snapshot is gone: %v", err)
	}
	for _, id := range []string{id, copied} {
		if err := d.Remove(ctx, id); err != nil {
			t.Error(err)
		}
	}
	for _, id := range theirs {
		if _, err := s.engine.ContainerInspect(ctx, id); err != nil {
			t.Errorf("a container that was made of ours is gone: %v", err)
		}
	}
}

// TestSnapshotKeepsSecrets: everybody may read the labels of an image, and the variables are not among them; whoever makes a
// sandbox of the snapshot has them, as long as the snapshot is there.
func TestSnapshotKeepsSecrets(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.start()
	id, image := s.config.Instance, dockertest.TinyImage(t, s.engine, dockertest.Busybox)
	spec := &agboxv1.CreateSpec{Image: image, Envs: map[string]string{"TOKEN": "swordfish"},
		OptionalServices: []*agboxv1.ServiceSpec{{Name: "db", Image: image, Envs: map[string]string{"PASSWORD": "swordfish"}}}}
	s.sandbox(d, id, spec)
	made, err := d.CreateSnapshot(t.Context(), wanted(id, "Secret", spec))
	if err != nil {
		t.Fatal(err)
	}
	labels := config(t, s.engine, made.Image)["Labels"].(map[string]any)
	encoded, err := base64.StdEncoding.DecodeString(labels[namespace+"snapshot-spec"].(string))
	public := &agboxv1.CreateSpec{}
	if err != nil || proto.Unmarshal(encoded, public) != nil || public.Image != image || strings.Contains(string(encoded), "swordfish") {
		t.Errorf("the image shows %v, %v", public, err)
	}
	if found, err := d.Snapshot(t.Context(), "Secret"); err != nil || !proto.Equal(found.Spec, spec) {
		t.Errorf("the snapshot's spec is %v, %v", found.Spec, err)
	}
	if err := d.DeleteSnapshot(t.Context(), "Secret"); err != nil {
		t.Fatal(err)
	}
	if left := s.kept(); len(left) > 0 {
		t.Errorf("of a snapshot that is deleted there is %v", left)
	}
}

// kept are the names of the files of specs.
func (s *site) kept() (names []string) {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, "snapshots"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
