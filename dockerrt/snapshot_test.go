package dockerrt_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/chaos/proxy"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// demanding is a spec that puts something of its own into every field of the container's configuration that it can.
func demanding(image string) *agboxv1.CreateSpec {
	return &agboxv1.CreateSpec{
		Image: image, Envs: map[string]string{"SECRET": "x", "COLOUR": "blue"}, Labels: map[string]string{"team": "a"},
		Command: []string{"sleep", "1000"}, User: "0", WorkingDir: "/tmp", Hostname: "box", PullPolicy: "never",
		Ports: []*agboxv1.PortSpec{{ContainerPort: 8080, HostIp: "127.0.0.1", Protocol: "tcp"}},
	}
}

func wanted(id, snapshotID string, spec *agboxv1.CreateSpec) runtime.Snapshot {
	return runtime.Snapshot{RequestID: "mark", Snapshot: &agboxv1.Snapshot{
		SnapshotId: snapshotID, SandboxId: id, Spec: spec, Labels: map[string]string{"kind": "x"},
	}}
}

// TestSnapshotConfig: the image is what the sandbox was made from, with other layers, our labels and nothing else.
func TestSnapshotConfig(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.start()
	for name, image := range map[string]string{
		"bare": dockertest.TinyImage(t, s.engine, dockertest.RootOnly), "full": s.full(),
		"user": dockertest.TinyImage(t, s.engine, dockertest.ImageUser), "entrypoint": dockertest.TinyImage(t, s.engine, dockertest.EntrypointPrepares),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := s.config.Instance + "-" + name
			s.sandbox(d, id, demanding(image))
			made, err := d.CreateSnapshot(t.Context(), wanted(id, "Snapshot-"+name, demanding(image)))
			if err != nil {
				t.Fatal(err)
			}
			same(t, s.engine, image, made.Image)
			// And once more, of a sandbox that was made from it.
			copied := id + "-copy"
			s.sandbox(d, copied, demanding(made.Image))
			again, err := d.CreateSnapshot(t.Context(), wanted(copied, "Again-"+name, demanding(made.Image)))
			if err != nil {
				t.Fatal(err)
			}
			same(t, s.engine, image, again.Image)
			if labels := config(t, s.engine, again.Image)["Labels"].(map[string]any); labels[namespace+"snapshot-sandbox-id"] != copied {
				t.Errorf("the copy's snapshot is labelled %v", labels)
			}
			found, err := d.Snapshot(t.Context(), again.SnapshotId)
			if err != nil || found.RequestID != "mark" || !reflect.DeepEqual(found.Snapshot.String(), again.Snapshot.String()) {
				t.Errorf("it is found as %v, %v; it was made as %v", found, err, again)
			}
		})
	}
}

// TestSnapshotHaltsClocks: however long the engine's commit takes, it is nothing of an exec's timeout.
func TestSnapshotHaltsClocks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.start()
	id, spec := s.config.Instance, &agboxv1.CreateSpec{Image: dockertest.TinyImage(t, s.engine, dockertest.Busybox)}
	s.sandbox(d, id, spec)
	ended := make(chan runtime.ExecResult, 1)
	s.proxy.OnCall(func(call proxy.Call, phase proxy.Phase) {
		if phase != proxy.Before || !strings.HasSuffix(call.Path, "/commit") {
			return
		}
		result, err := d.Exec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, ExecId: "exec-1",
			Command: []string{"sleep", "0.5"}, Timeout: durationpb.New(50 * time.Millisecond)})
		if err != nil {
			t.Error(err)
		}
		ended <- result
	})
	if _, err := d.CreateSnapshot(t.Context(), wanted(id, "Snapshot-1", spec)); err != nil {
		t.Fatal(err)
	}
	if result := <-ended; result.Resources.GetTimedOut() || result.ExitCode != 0 {
		t.Errorf("the exec ended as %v", result)
	}
}

// same compares the configurations of two images, which differ in labels of ours only.
func same(t *testing.T, engine *client.Client, base, snapshot string) {
	t.Helper()
	want, got := config(t, engine, base), config(t, engine, snapshot)
	labels, _ := got["Labels"].(map[string]any)
	maps.DeleteFunc(labels, func(key string, _ any) bool { return strings.HasPrefix(key, namespace+"snapshot-") })
	if own, _ := want["Labels"].(map[string]any); len(own) == 0 && len(labels) == 0 {
		got["Labels"] = want["Labels"]
	}
	delete(want, "Image") // what a builder has noted
	delete(got, "Image")
	delete(want, "Hostname") // a committed container's
	delete(got, "Hostname")
	for key := range want {
		if !reflect.DeepEqual(got[key], want[key]) {
			t.Errorf("%s of the snapshot is %v, and of its image %v", key, got[key], want[key])
		}
	}
	for key := range got {
		if _, there := want[key]; !there {
			t.Errorf("the snapshot has %s %v", key, got[key])
		}
	}
}

func config(t *testing.T, engine *client.Client, image string) map[string]any {
	t.Helper()
	var document bytes.Buffer
	if _, err := engine.ImageInspect(t.Context(), image, client.ImageInspectWithRawResponse(&document)); err != nil {
		t.Fatal(err)
	}
	var found struct{ Config map[string]any }
	if err := json.Unmarshal(document.Bytes(), &found); err != nil {
		t.Fatal(err)
	}
	return found.Config
}

// TestSnapshotOfMixture: an engine that loads no image without its layers gives one that works all the same, and whose
// labels select nothing.
func TestSnapshotOfMixture(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.start()
	s.use(fault("/images/load"))
	for name, image := range map[string]string{"bare": dockertest.TinyImage(t, s.engine, dockertest.RootOnly), "full": s.full()} {
		id := s.config.Instance + "-" + name
		s.sandbox(d, id, demanding(image))
		made, err := d.CreateSnapshot(t.Context(), wanted(id, "Snapshot-"+name, demanding(image)))
		if err != nil {
			t.Fatal(err)
		}
		want, got := config(t, s.engine, image), config(t, s.engine, made.Image)
		if entrypoint, _ := got["Entrypoint"].([]any); len(entrypoint) > 0 != (name == "full") {
			t.Errorf("%s: the entrypoint is %v", name, entrypoint)
		}
		for _, key := range []string{"Entrypoint", "Cmd", "Volumes", "Healthcheck", "User", "WorkingDir", "OnBuild"} {
			if name == "full" && !reflect.DeepEqual(got[key], want[key]) {
				t.Errorf("%s of the snapshot is %v, and of its image %v", key, got[key], want[key])
			}
		}
		somebodys := s.container(made.Image, "")
		s.sandbox(d, id+"-copy", demanding(made.Image))
		if err := d.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if _, err := s.engine.ContainerInspect(t.Context(), somebodys); err != nil {
			t.Errorf("what somebody made from it went with the sandbox: %v", err)
		}
	}
	if images := s.images(); len(images) != 2 {
		t.Errorf("there are %v", images)
	}
}

// TestHalfSnapshot: what a process that died left of one is removed by the next, and nothing else is.
func TestHalfSnapshot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.start()
	image := dockertest.TinyImage(t, s.engine, dockertest.RootOnly)
	id := s.config.Instance + "-box"
	s.sandbox(d, id, &agboxv1.CreateSpec{Image: image})
	kept, err := d.CreateSnapshot(t.Context(), wanted(id, "whole", &agboxv1.CreateSpec{Image: image}))
	if err != nil {
		t.Fatal(err)
	}
	mine := wanted(id, runtime.ForkSnapshotID(id), &agboxv1.CreateSpec{Image: image})
	mine.ForkID = id
	if _, err := d.CreateSnapshot(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	orphan := wanted(id, runtime.ForkSnapshotID("nobody-knows"), &agboxv1.CreateSpec{Image: image})
	orphan.ForkID = "nobody-knows"
	if _, err := d.CreateSnapshot(t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	other := newSite(t)
	other.use(fault("/images/"))
	elsewhere := other.start()
	other.use()
	other.sandbox(elsewhere, other.config.Instance, &agboxv1.CreateSpec{Image: image})
	for at, d := range map[*site]*dockerrt.Docker{s: d, other: elsewhere} {
		sandbox := id
		if at == other {
			sandbox = other.config.Instance
		}
		at.use(fault("/images/load"), fault("/images/sha256:.*/tag"), proxy.Rule{Method: http.MethodDelete, Path: regexp.MustCompile("/images/"),
			Phase: proxy.Before, Fault: proxy.Status(http.StatusInternalServerError, "no room")})
		for range map[bool]int{true: 2, false: 1}[at == s] { // a request that is repeated takes no name from what the first left
			if made, err := d.CreateSnapshot(t.Context(), wanted(sandbox, "half", &agboxv1.CreateSpec{Image: image})); err == nil {
				t.Fatalf("%v was made", made)
			}
		}
		at.use()
	}
	if found, err := d.Inventory(t.Context()); err != nil || len(s.images()) != 5 || found.Objects["nobody-knows"] {
		t.Errorf("the process that did it finds %v, %v, and leaves %v", found, err, s.images())
	}
	if list, err := d.Snapshots(t.Context()); err != nil || len(list) != 3 {
		t.Errorf("it lists %v, %v", list, err)
	}
	d.Close()
	next := s.start()
	found, err := next.Inventory(t.Context())
	if err != nil || !found.Objects["nobody-knows"] || !found.Objects[id] {
		t.Errorf("the next process finds %v, %v", found, err)
	}
	if len(s.images()) != 3 || len(other.images()) != 1 {
		t.Errorf("it leaves %v, and of another daemon %v", s.images(), other.images())
	}
	if err := next.Remove(t.Context(), "nobody-knows"); err != nil {
		t.Fatal(err)
	}
	if err := next.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if images := s.images(); len(images) != 1 || images[0].RepoTags[0] != kept.Image {
		t.Errorf("without the forks there are %v", images)
	}
	if _, err := elsewhere.Snapshot(t.Context(), "whole"); !errors.Is(err, runtime.ErrSnapshotNotFound) {
		t.Errorf("another daemon finds it: %v", err)
	}
	if err := elsewhere.DeleteSnapshot(t.Context(), "whole"); !errors.Is(err, runtime.ErrSnapshotNotFound) {
		t.Errorf("another daemon deletes it: %v", err)
	}
}

// TestSnapshotNameTaken: an image that somebody gave our name stays as it is.
func TestSnapshotNameTaken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.start()
	image := dockertest.TinyImage(t, s.engine, dockertest.RootOnly)
	id := s.config.Instance + "-box"
	s.sandbox(d, id, &agboxv1.CreateSpec{Image: image})
	name := d.SnapshotImage("taken")
	if err := s.engine.ImageTag(t.Context(), image, name); err != nil {
		t.Fatal(err)
	}
	defer s.engine.ImageRemove(context.Background(), name, dockerimage.RemoveOptions{})
	if _, err := d.CreateSnapshot(t.Context(), wanted(id, "taken", &agboxv1.CreateSpec{Image: image})); !errors.Is(err, runtime.ErrSnapshotIDTaken) {
		t.Errorf("under a foreign image's name it is %v", err)
	}
	if err := d.DeleteSnapshot(t.Context(), "taken"); !errors.Is(err, runtime.ErrSnapshotNotFound) {
		t.Errorf("the foreign image's removal is %v", err)
	}
	if _, err := d.CreateSnapshot(t.Context(), wanted("nothing-there", "kept", nil)); !errors.Is(err, runtime.ErrNothingToKeep) {
		t.Errorf("a snapshot of nothing is %v", err)
	}
	if _, err := d.CreateSnapshot(t.Context(), wanted(id, "removed-twice", &agboxv1.CreateSpec{Image: image})); err != nil {
		t.Fatal(err)
	}
	s.use(proxy.Rule{Method: http.MethodDelete, Path: regexp.MustCompile("/images/"), Phase: proxy.After,
		Fault: proxy.Status(http.StatusInternalServerError, "unrecognized image ID sha256:0123")})
	if err := d.DeleteSnapshot(t.Context(), "removed-twice"); err != nil {
		t.Errorf("a removal beside another one: %v", err)
	}
	s.use()
	if found, err := s.engine.ImageInspect(t.Context(), name); err != nil || len(s.images()) != 0 {
		t.Errorf("the foreign image is %v, %v; ours are %v", found.ID, err, s.images())
	}
}
