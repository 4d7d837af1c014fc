package dockerrt_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/chaos/proxy"
	"github.com/agbox-dev/agbox/test/dockertest"
)

const namespace = "io.github.1996fanrui.agents-sandbox."

// site is a directory and an engine behind a proxy, for one daemon after the other.
type site struct {
	t      *testing.T
	dir    string
	engine *client.Client
	proxy  *proxy.Proxy
	config dockerrt.Config
	// bases are images that snapshots may depend on.
	bases []string
	// process is the newest daemon's. It removes all sandboxes at the end of the test.
	process   *dockerrt.Docker
	mu        sync.Mutex
	sandboxes []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: dir, engine: dockertest.Engine(t)}
	if s.proxy, err = proxy.New(strings.TrimPrefix(s.engine.DaemonHost(), "unix://"), filepath.Join(dir, "p"), 1); err != nil {
		t.Fatal(err)
	}
	s.config = dockerrt.Config{
		Host: s.proxy.Host(), Instance: filepath.Base(dir), DataDir: dir, InitPath: dockertest.InitBinary(t),
		Pool: netip.MustParsePrefix("10.217.16.0/20"), SubnetBits: 28, CreateConcurrency: 1, StopGrace: time.Second, PID: os.Getpid(),
	}
	t.Cleanup(func() {
		var images []string
		for _, image := range s.images() {
			images = append(images, image.ID)
		}
		for _, image := range append(images, s.bases...) {
			if _, err := s.engine.ImageRemove(context.Background(), image, dockerimage.RemoveOptions{Force: true}); err != nil {
				t.Error(err)
			}
		}
		s.engine.Close()
		if err := errors.Join(s.proxy.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start is the daemon's next process.
func (s *site) start() *dockerrt.Docker {
	s.t.Helper()
	s.config.Started = s.config.Started.Add(time.Hour)
	d, err := dockerrt.New(s.t.Context(), s.config, slog.New(slog.NewTextHandler(s.t.Output(), nil)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.process = d
	s.t.Cleanup(func() {
		if s.process == d {
			s.removeAll()
		}
		d.Close()
	})
	return d
}

// removeAll has the newest process remove every sandbox.
func (s *site) removeAll() {
	for _, id := range s.sandboxes {
		if err := s.process.Remove(context.Background(), id); err != nil {
			s.t.Error(err)
		}
	}
}

// sandbox makes one that goes with the test.
func (s *site) sandbox(d *dockerrt.Docker, id string, spec *agboxv1.CreateSpec) {
	s.t.Helper()
	s.mu.Lock()
	s.sandboxes = append(s.sandboxes, id)
	s.mu.Unlock()
	if _, err := d.Create(s.t.Context(), id, "1", spec, ignore); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) images() []dockerimage.Summary {
	s.t.Helper()
	list, err := s.engine.ImageList(context.Background(), dockerimage.ListOptions{
		Filters: filters.NewArgs(filters.Arg("label", namespace+"snapshot-instance="+s.config.Instance))})
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

func (s *site) container(image, name string) string {
	s.t.Helper()
	made, err := s.engine.ContainerCreate(s.t.Context(), &container.Config{Image: image, Cmd: []string{"true"}}, nil, nil, nil, name)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		s.engine.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
	})
	return made.ID
}

// fault has the engine answer calls like these with an error.
func fault(calls string) proxy.Rule {
	return proxy.Rule{Path: regexp.MustCompile(calls), Phase: proxy.Before, Fault: proxy.Status(http.StatusInternalServerError, "no room")}
}

func (s *site) use(rules ...proxy.Rule) {
	s.t.Helper()
	if err := s.proxy.Use(rules...); err != nil {
		s.t.Fatal(err)
	}
}

// full is an image whose configuration has something in every field.
func (s *site) full() string {
	s.t.Helper()
	id := s.container(dockertest.TinyImage(s.t, s.engine, dockertest.Busybox), "")
	image, err := s.engine.ContainerCommit(s.t.Context(), id, container.CommitOptions{Config: &container.Config{StopSignal: "SIGUSR1", Shell: []string{"sh", "-c"}}, Changes: []string{
		`ENTRYPOINT ["sh", "-c", "exec \"$@\"", "--"]`, `CMD ["serve", "--all"]`, `ENV COLOUR=red SHAPE=round`, `EXPOSE 80/tcp 53/udp`,
		`USER 1000:1000`, `WORKDIR /home`, `LABEL a=b c=d`, `VOLUME /data`, `HEALTHCHECK --interval=5m CMD true`, `ONBUILD RUN true`,
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.bases = append(s.bases, image.ID)
	return image.ID
}

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
