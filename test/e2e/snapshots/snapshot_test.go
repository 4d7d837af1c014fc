package snapshots_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

// Labels of the images of snapshots.
const (
	snapshotInstance = "io.github.1996fanrui.agents-sandbox.snapshot-instance"
	snapshotFork     = "io.github.1996fanrui.agents-sandbox.snapshot-fork-id"
	snapshotLabel    = "io.github.1996fanrui.agents-sandbox.snapshot-id"
)

// startSnapshots runs a daemon whose snapshots go with it, and fails the test when one that nobody knows stays behind.
func startSnapshots(t *testing.T) *servertest.Daemon {
	t.Helper()
	engine := dockertest.Engine(t)
	var d *servertest.Daemon
	t.Cleanup(func() { // after the daemon's own, which deletes the sandboxes
		defer engine.Close()
		removeSnapshots(t, engine, filepath.Base(d.Dir()))
	})
	d = servertest.Start(t)
	return d
}

// removeSnapshots removes the images of a daemon that has no sandboxes any more.
func removeSnapshots(t *testing.T, engine *client.Client, instance string) {
	t.Helper()
	for _, image := range labelledImages(t, engine, snapshotInstance, instance) {
		if image.Labels[snapshotFork] != "" || len(image.RepoTags) == 0 || image.RepoTags[0] == "<none>:<none>" {
			t.Errorf("image %s with %v stays behind", image.ID, image.Labels)
		}
		if _, err := engine.ImageRemove(context.Background(), image.ID, dockerimage.RemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	}
}

func labelledImages(t *testing.T, engine *client.Client, label, value string) []dockerimage.Summary {
	t.Helper()
	images, err := engine.ImageList(context.WithoutCancel(t.Context()), dockerimage.ListOptions{Filters: filters.NewArgs(filters.Arg("label", label+"="+value))})
	if err != nil {
		t.Fatal(err)
	}
	return images
}

func takeSnapshot(t *testing.T, d *servertest.Daemon, req *agboxv1.SnapshotSandboxRequest) *agboxv1.Snapshot {
	t.Helper()
	made, err := d.SnapshotSandbox(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return made.Snapshot
}

// TestCreateFromSnapshot: it begins with the files of that moment and with the spec, services included, and the snapshot
// stays as long as any such sandbox may need it.
func TestCreateFromSnapshot(t *testing.T) {
	t.Parallel()
	d := startSnapshots(t)
	source := t.TempDir()
	id := d.Create(&agboxv1.CreateSpec{
		RequiredServices: []*agboxv1.ServiceSpec{servertest.Web(d, "db")}, Labels: map[string]string{"team": "a"},
		Envs:   map[string]string{"COLOUR": "red", "SIZE": "big"},
		Copies: []*agboxv1.CopySpec{{Source: source, Target: "/copied"}},
		Ports:  []*agboxv1.PortSpec{{ContainerPort: 80, HostPort: 23080}}, PidsLimit: 333,
	})
	servertest.Sh(t, d, id, "echo first > /workspace/file; echo first > /tmp/file")
	first := takeSnapshot(t, d, &agboxv1.SnapshotSandboxRequest{SandboxId: id, SnapshotId: "Before-1", Labels: map[string]string{"kind": "x", "at": "1"}})
	servertest.Sh(t, d, id, "echo second > /workspace/file; rm /tmp/file")
	second := takeSnapshot(t, d, &agboxv1.SnapshotSandboxRequest{SandboxId: id, Labels: map[string]string{"kind": "x"}})
	got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil || got.Sandbox.State != servertest.Ready {
		t.Errorf("after two snapshots the sandbox is %v, %v", got, err)
	}

	found, err := d.Engine.ImageInspect(t.Context(), first.Image)
	if err != nil || first.SizeBytes != uint64(found.Size) || first.SandboxId != id || first.Fork || first.Spec.PidsLimit != 333 || first.Spec.Image != d.Image {
		t.Errorf("the snapshot is %v; the engine says %d bytes, %v", first, found.Size, err)
	}
	other := d.Create(&agboxv1.CreateSpec{})
	third := takeSnapshot(t, d, &agboxv1.SnapshotSandboxRequest{SandboxId: other, SnapshotId: strings.Repeat("A", 200)})
	for _, tt := range []struct {
		req  *agboxv1.ListSnapshotsRequest
		want []*agboxv1.Snapshot
	}{
		{&agboxv1.ListSnapshotsRequest{}, []*agboxv1.Snapshot{third, second, first}},
		{&agboxv1.ListSnapshotsRequest{LabelSelector: map[string]string{"kind": "x"}}, []*agboxv1.Snapshot{second, first}},
		{&agboxv1.ListSnapshotsRequest{LabelSelector: map[string]string{"kind": "x", "at": "1"}}, []*agboxv1.Snapshot{first}},
		{&agboxv1.ListSnapshotsRequest{SandboxId: other}, []*agboxv1.Snapshot{third}},
		{&agboxv1.ListSnapshotsRequest{SandboxId: other, LabelSelector: map[string]string{"kind": "x"}}, nil},
	} {
		list, err := d.ListSnapshots(t.Context(), tt.req)
		if err != nil || !slices.EqualFunc(list.Snapshots, tt.want, func(a, b *agboxv1.Snapshot) bool { return proto.Equal(a, b) }) {
			t.Errorf("the list for %v is\n%v, %v; want\n%v", tt.req, list, err, tt.want)
		}
	}

	created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SnapshotId: "Before-1",
		ConfigYaml: []byte("envs: {COLOUR: blue}\npids_limit: 444"), CreateSpec: &agboxv1.CreateSpec{Envs: map[string]string{"SHAPE": "round"}}})
	if err != nil {
		t.Fatal(err)
	}
	from := created.Sandbox.SandboxId
	d.Await(from, agboxv1.EventType_SANDBOX_READY)
	if text := servertest.Sh(t, d, from, "cat /workspace/file /tmp/file; ls -d /copied; echo $COLOUR $SIZE $SHAPE"); text != "first\nfirst\n/copied\nblue big round\n" {
		t.Errorf("the sandbox from the snapshot has %q", text)
	}
	if text := servertest.Sh(t, d, from, "wget -qO- http://db:8080/index.html"); text != "hello from db\n" {
		t.Errorf("its service says %q", text)
	}
	if text := servertest.Sh(t, d, id, "cat /workspace/file"); text != "second\n" {
		t.Errorf("the first sandbox has %q", text)
	}
	handle, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: from})
	if err != nil || handle.Sandbox.Labels["team"] != "a" || len(handle.Sandbox.Ports) != 1 || handle.Sandbox.Ports[0].HostPort == 23080 {
		t.Errorf("its handle is %v, %v", handle, err)
	}
	primary, err := d.Engine.ContainerInspect(t.Context(), "agbox-primary-"+from)
	if err != nil || *primary.HostConfig.PidsLimit != 444 {
		t.Errorf("its primary is %+v, %v", primary.HostConfig, err)
	}

	inUse := func() {
		t.Helper()
		_, err := d.DeleteSnapshot(t.Context(), &agboxv1.DeleteSnapshotRequest{SnapshotId: "Before-1"})
		servertest.Refused(t, err, codes.FailedPrecondition, "SNAPSHOT_IN_USE", "", from, "Before-1", "delete what was made from it first")
	}
	inUse()
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: from}); err != nil {
		t.Fatal(err)
	}
	at := servertest.AwaitKind(d, from, 0, agboxv1.EventType_SANDBOX_STOPPED)
	inUse()
	d.Delete(id) // what the snapshot was made of does not matter
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: from}); err != nil {
		t.Fatal(err)
	}
	servertest.AwaitKind(d, from, at.Sequence, agboxv1.EventType_SANDBOX_READY)
	again := takeSnapshot(t, d, &agboxv1.SnapshotSandboxRequest{SandboxId: from, SnapshotId: "of-a-copy"})
	d.Delete(from)
	if _, err := d.DeleteSnapshot(t.Context(), &agboxv1.DeleteSnapshotRequest{SnapshotId: "Before-1"}); err != nil {
		t.Fatal(err)
	}
	_, err = d.DeleteSnapshot(t.Context(), &agboxv1.DeleteSnapshotRequest{SnapshotId: "Before-1"})
	servertest.Refused(t, err, codes.NotFound, "SNAPSHOT_NOT_FOUND", "", "there is no snapshot Before-1")
	if _, err := d.Engine.ImageInspect(t.Context(), first.Image); !errdefs.IsNotFound(err) {
		t.Errorf("the engine still has its image: %v", err)
	}

	d.Restart()
	created, err = d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SnapshotId: again.SnapshotId})
	if err != nil {
		t.Fatal(err)
	}
	d.Await(created.Sandbox.SandboxId, agboxv1.EventType_SANDBOX_READY)
	if text := servertest.Sh(t, d, created.Sandbox.SandboxId, "cat /workspace/file; echo $COLOUR"); text != "first\nblue\n" {
		t.Errorf("the copy of a copy has %q", text)
	}
}

// TestSnapshotInUseByOthers: a container that somebody made from the snapshot's image is not taken for ours, and holds
// the snapshot.
func TestSnapshotInUseByOthers(t *testing.T) {
	t.Parallel()
	d := startSnapshots(t)
	id := d.Create(&agboxv1.CreateSpec{})
	made := takeSnapshot(t, d, &agboxv1.SnapshotSandboxRequest{SandboxId: id})
	other, err := d.Engine.ContainerCreate(t.Context(), &container.Config{Image: made.Image, Cmd: []string{"true"}}, nil, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Engine.ContainerRemove(context.Background(), other.ID, container.RemoveOptions{Force: true})
	_, err = d.DeleteSnapshot(t.Context(), &agboxv1.DeleteSnapshotRequest{SnapshotId: made.SnapshotId})
	servertest.Refused(t, err, codes.FailedPrecondition, "SNAPSHOT_IN_USE", "", "a container that is no sandbox's", other.ID[:12])
	d.Delete(id)
	if _, err := d.Engine.ContainerInspect(t.Context(), other.ID); err != nil {
		t.Errorf("the container of somebody else: %v", err)
	}
}
