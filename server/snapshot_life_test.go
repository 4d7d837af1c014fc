package server_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	"github.com/agbox-dev/agbox/actors/runtime"
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

// sh runs a line of shell that must succeed, and returns its output.
func sh(t *testing.T, d *servertest.Daemon, id, line string) string {
	t.Helper()
	end, stdout, stderr := d.Exec(id, "sh", "-c", line)
	if end.ExitCode != 0 {
		t.Fatalf("%s: %v, %s", line, end, stderr)
	}
	return stdout
}

// TestCreateFromSnapshot: it begins with the files of that moment and with the spec, services included, and the snapshot
// stays as long as any such sandbox may need it.
func TestCreateFromSnapshot(t *testing.T) {
	t.Parallel()
	d := startSnapshots(t)
	source := t.TempDir()
	id := d.Create(&agboxv1.CreateSpec{
		RequiredServices: []*agboxv1.ServiceSpec{web(d, "db")}, Labels: map[string]string{"team": "a"},
		Envs:   map[string]string{"COLOUR": "red", "SIZE": "big"},
		Copies: []*agboxv1.CopySpec{{Source: source, Target: "/copied"}},
		Ports:  []*agboxv1.PortSpec{{ContainerPort: 80, HostPort: 23080}}, PidsLimit: 333,
	})
	sh(t, d, id, "echo first > /workspace/file; echo first > /tmp/file")
	first := takeSnapshot(t, d, &agboxv1.SnapshotSandboxRequest{SandboxId: id, SnapshotId: "Before-1", Labels: map[string]string{"kind": "x", "at": "1"}})
	sh(t, d, id, "echo second > /workspace/file; rm /tmp/file")
	second := takeSnapshot(t, d, &agboxv1.SnapshotSandboxRequest{SandboxId: id, Labels: map[string]string{"kind": "x"}})
	got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil || got.Sandbox.State != ready {
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
	if text := sh(t, d, from, "cat /workspace/file /tmp/file; ls -d /copied; echo $COLOUR $SIZE $SHAPE"); text != "first\nfirst\n/copied\nblue big round\n" {
		t.Errorf("the sandbox from the snapshot has %q", text)
	}
	if text := sh(t, d, from, "wget -qO- http://db:8080/index.html"); text != "hello from db\n" {
		t.Errorf("its service says %q", text)
	}
	if text := sh(t, d, id, "cat /workspace/file"); text != "second\n" {
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
		refused(t, err, codes.FailedPrecondition, "SNAPSHOT_IN_USE", "", from, "Before-1", "delete what was made from it first")
	}
	inUse()
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: from}); err != nil {
		t.Fatal(err)
	}
	at := awaitKind(d, from, 0, agboxv1.EventType_SANDBOX_STOPPED)
	inUse()
	d.Delete(id) // what the snapshot was made of does not matter
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: from}); err != nil {
		t.Fatal(err)
	}
	awaitKind(d, from, at.Sequence, agboxv1.EventType_SANDBOX_READY)
	again := takeSnapshot(t, d, &agboxv1.SnapshotSandboxRequest{SandboxId: from, SnapshotId: "of-a-copy"})
	d.Delete(from)
	if _, err := d.DeleteSnapshot(t.Context(), &agboxv1.DeleteSnapshotRequest{SnapshotId: "Before-1"}); err != nil {
		t.Fatal(err)
	}
	_, err = d.DeleteSnapshot(t.Context(), &agboxv1.DeleteSnapshotRequest{SnapshotId: "Before-1"})
	refused(t, err, codes.NotFound, "SNAPSHOT_NOT_FOUND", "", "there is no snapshot Before-1")
	if _, err := d.Engine.ImageInspect(t.Context(), first.Image); !errdefs.IsNotFound(err) {
		t.Errorf("the engine still has its image: %v", err)
	}

	d.Restart()
	created, err = d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SnapshotId: again.SnapshotId})
	if err != nil {
		t.Fatal(err)
	}
	d.Await(created.Sandbox.SandboxId, agboxv1.EventType_SANDBOX_READY)
	if text := sh(t, d, created.Sandbox.SandboxId, "cat /workspace/file; echo $COLOUR"); text != "first\nblue\n" {
		t.Errorf("the copy of a copy has %q", text)
	}
}

func fork(t *testing.T, d *servertest.Daemon, req *agboxv1.ForkSandboxRequest) string {
	t.Helper()
	forked, err := d.ForkSandbox(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return forked.Sandbox.SandboxId
}

// TestFork: of a sandbox in each state that has files, which stays in it, and with the fork goes what it was made from.
func TestFork(t *testing.T) {
	t.Parallel()
	d := startSnapshots(t)
	id := d.Create(&agboxv1.CreateSpec{Envs: map[string]string{"COLOUR": "red"}})
	check := func(forkID, want string) {
		t.Helper()
		d.Await(forkID, agboxv1.EventType_SANDBOX_READY)
		if text := sh(t, d, forkID, "cat /workspace/file; echo $COLOUR"); text != want {
			t.Errorf("the fork has %q, want %q", text, want)
		}
		images := labelledImages(t, d.Engine, snapshotFork, forkID)
		list, err := d.ListSnapshots(t.Context(), &agboxv1.ListSnapshotsRequest{})
		if err != nil || len(images) != 1 || len(list.Snapshots) != 1 || !list.Snapshots[0].Fork {
			t.Fatalf("it is made from %v; the list is %v, %v", images, list, err)
		}
		_, err = d.DeleteSnapshot(t.Context(), &agboxv1.DeleteSnapshotRequest{SnapshotId: list.Snapshots[0].SnapshotId})
		refused(t, err, codes.FailedPrecondition, "SNAPSHOT_IN_USE", "", "belongs to sandbox "+forkID)
		_, err = d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SnapshotId: list.Snapshots[0].SnapshotId})
		refused(t, err, codes.FailedPrecondition, "SNAPSHOT_IN_USE", "", "belongs to sandbox "+forkID)
		d.Delete(forkID)
		if images := labelledImages(t, d.Engine, snapshotFork, forkID); len(images) > 0 {
			t.Errorf("a deleted fork leaves %v", images)
		}
	}
	state := func(want agboxv1.SandboxState) {
		t.Helper()
		if got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id}); err != nil || got.Sandbox.State != want {
			t.Errorf("after the fork the sandbox is %v, %v", got, err)
		}
	}
	sh(t, d, id, "echo ready > /workspace/file")
	counter := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c",
		"i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo $i; sleep 0.05; done"}})
	check(fork(t, d, &agboxv1.ForkSandboxRequest{SandboxId: id, ForkId: "fork-of-ready-" + filepath.Base(d.Dir())}), "ready\nred\n")
	state(ready)
	if end := d.ExecEnd(id, counter.ExecId); end.ExitCode != 0 || d.Read(counter.StdoutLogPath) != numbers(30) {
		t.Errorf("what ran meanwhile ended with %v and %q", end, d.Read(counter.StdoutLogPath))
	}

	sh(t, d, id, "echo paused > /workspace/file")
	paused := pause(t, d, id)
	check(fork(t, d, &agboxv1.ForkSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Envs: map[string]string{"COLOUR": "blue"}}}), "paused\nblue\n")
	state(agboxv1.SandboxState_SANDBOX_STATE_PAUSED)
	if found, err := d.Engine.ContainerInspect(t.Context(), "agbox-primary-"+id); err != nil || !found.State.Paused {
		t.Errorf("the engine says %+v, %v", found.State, err)
	}
	if _, err := d.UnpauseSandbox(t.Context(), &agboxv1.UnpauseSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	awaitKind(d, id, paused.Sequence, agboxv1.EventType_SANDBOX_UNPAUSED)

	sh(t, d, id, "echo stopped > /workspace/file")
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	at := awaitKind(d, id, 0, agboxv1.EventType_SANDBOX_STOPPED)
	check(fork(t, d, &agboxv1.ForkSandboxRequest{SandboxId: id}), "stopped\nred\n")
	state(stopped)

	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	awaitKind(d, id, at.Sequence, agboxv1.EventType_SANDBOX_READY)
	if err := d.Engine.ContainerKill(t.Context(), "agbox-primary-"+id, "KILL"); err != nil {
		t.Fatal(err)
	}
	awaitKind(d, id, 0, agboxv1.EventType_SANDBOX_FAILED)
	check(fork(t, d, &agboxv1.ForkSandboxRequest{SandboxId: id}), "stopped\nred\n")
	state(failed)

	if err := d.Engine.ContainerRemove(t.Context(), "agbox-primary-"+id, container.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	_, err := d.ForkSandbox(t.Context(), &agboxv1.ForkSandboxRequest{SandboxId: id})
	refused(t, err, codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "", "FAILED: the primary container is gone")
}

// TestForkThatFails keeps what it was made from until it is deleted, and one that is not accepted leaves nothing.
func TestForkThatFails(t *testing.T) {
	t.Parallel()
	d := startSnapshots(t)
	instance := filepath.Base(d.Dir())
	id := d.Create(&agboxv1.CreateSpec{})
	forkID := fork(t, d, &agboxv1.ForkSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Command: []string{"/no/such/program"}}})
	awaitKind(d, forkID, 0, agboxv1.EventType_SANDBOX_FAILED)
	if images := labelledImages(t, d.Engine, snapshotInstance, instance); len(images) != 1 {
		t.Errorf("a fork that failed has %v", images)
	}
	_, err := d.ForkSandbox(t.Context(), &agboxv1.ForkSandboxRequest{SandboxId: id, ForkId: forkID})
	refused(t, err, codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS", "", forkID)
	if images := labelledImages(t, d.Engine, snapshotInstance, instance); len(images) != 1 {
		t.Errorf("after another one with its id it has %v", images)
	}
	d.Delete(forkID)

	foreign := "agbox-primary-conflict-" + instance
	made, err := d.Engine.ContainerCreate(t.Context(), &container.Config{Image: d.Image, Cmd: []string{"true"}}, nil, nil, nil, foreign)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Engine.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true})
	_, err = d.ForkSandbox(t.Context(), &agboxv1.ForkSandboxRequest{SandboxId: id, ForkId: strings.TrimPrefix(foreign, "agbox-primary-")})
	refused(t, err, codes.AlreadyExists, "SANDBOX_CONFLICT", "", foreign)
	if images := labelledImages(t, d.Engine, snapshotInstance, instance); len(images) != 0 {
		t.Errorf("a fork that was refused leaves %v", images)
	}
}

// TestForksAtOnce: five of one sandbox, which take their turns and are all whole; and of five snapshots with one id one
// is made.
func TestForksAtOnce(t *testing.T) {
	t.Parallel()
	d := startSnapshots(t)
	id := d.Create(&agboxv1.CreateSpec{})
	sh(t, d, id, "echo same > /workspace/file")
	forks := make([]string, 5)
	var group sync.WaitGroup
	for i := range forks {
		group.Go(func() {
			forked, err := d.ForkSandbox(t.Context(), &agboxv1.ForkSandboxRequest{SandboxId: id})
			if err != nil {
				t.Error(err)
				return
			}
			forks[i] = forked.Sandbox.SandboxId
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	for _, forkID := range forks {
		d.Await(forkID, agboxv1.EventType_SANDBOX_READY)
		if text := sh(t, d, forkID, "cat /workspace/file"); text != "same\n" {
			t.Errorf("fork %s has %q", forkID, text)
		}
	}

	results := make([]error, 5)
	one := "one-id-" + filepath.Base(d.Dir())
	for i := range results {
		group.Go(func() {
			_, results[i] = d.SnapshotSandbox(t.Context(), &agboxv1.SnapshotSandboxRequest{SandboxId: id, SnapshotId: one})
		})
	}
	group.Wait()
	won := 0
	for _, err := range results {
		if err == nil {
			won++
		} else {
			refused(t, err, codes.AlreadyExists, "SNAPSHOT_ID_TAKEN", "", one, id)
		}
	}
	if images := labelledImages(t, d.Engine, snapshotLabel, one); won != 1 || len(images) != 1 {
		t.Errorf("%d of five snapshots with one id were made: %v", won, images)
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
	refused(t, err, codes.FailedPrecondition, "SNAPSHOT_IN_USE", "", "a container that is no sandbox's", other.ID[:12])
	d.Delete(id)
	if _, err := d.Engine.ContainerInspect(t.Context(), other.ID); err != nil {
		t.Errorf("the container of somebody else: %v", err)
	}
}

// TestSnapshotRefusals, without an engine.
func TestSnapshotRefusals(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	fake := actorstest.New()
	fake.Before = func(ctx context.Context, call string) error {
		if call != "create slow" {
			return nil
		}
		select {
		case <-released:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f := startFleet(t, actors.Config{}, fake)
	defer close(released)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f.create("box-1", nil)
	f.create("gone", nil)
	f.remove("gone")
	for id, spec := range map[string]*agboxv1.CreateSpec{"slow": {Image: "image"}, "lazy": {Image: "image", Lazy: true}} {
		if _, err := f.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	marked := metadata.AppendToOutgoingContext(ctx, "agbox-request-id", "mark-1")
	made, err := f.SnapshotSandbox(marked, &agboxv1.SnapshotSandboxRequest{SandboxId: "box-1", SnapshotId: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.SnapshotSandbox(marked, &agboxv1.SnapshotSandboxRequest{SandboxId: "box-1", SnapshotId: "kept"})
	if err != nil || !proto.Equal(again, made) {
		t.Errorf("the same request again: %v, %v", again, err)
	}
	_, err = f.SnapshotSandbox(marked, &agboxv1.SnapshotSandboxRequest{SandboxId: "box-1", SnapshotId: "kept", Labels: map[string]string{"a": "b"}})
	refused(t, err, codes.AlreadyExists, "SNAPSHOT_ID_TAKEN", "", "snapshot id kept", "box-1", "choose another id")
	_, err = f.SnapshotSandbox(ctx, &agboxv1.SnapshotSandboxRequest{SandboxId: "box-1", SnapshotId: "kept"})
	refused(t, err, codes.AlreadyExists, "SNAPSHOT_ID_TAKEN", "", "snapshot id kept", "box-1", "choose another id")
	_, err = f.SnapshotSandbox(metadata.AppendToOutgoingContext(ctx, "agbox-request-id", "mark-2"),
		&agboxv1.SnapshotSandboxRequest{SandboxId: "box-1", SnapshotId: "kept"})
	refused(t, err, codes.AlreadyExists, "SNAPSHOT_ID_TAKEN", "", "snapshot id kept", "box-1", "choose another id")
	for id, words := range map[string]string{
		"slow": "PENDING: wait until it is READY", "lazy": "DORMANT: nothing of it was made yet", "gone": "DELETED: only one that",
	} {
		_, err := f.SnapshotSandbox(ctx, &agboxv1.SnapshotSandboxRequest{SandboxId: id})
		refused(t, err, codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "", "snapshot of sandbox "+id, words)
		_, err = f.ForkSandbox(ctx, &agboxv1.ForkSandboxRequest{SandboxId: id})
		refused(t, err, codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "", "snapshot of sandbox "+id, words)
	}
	_, err = f.SnapshotSandbox(ctx, &agboxv1.SnapshotSandboxRequest{SandboxId: "nothing"})
	refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "", "nothing")
	_, err = f.ForkSandbox(ctx, &agboxv1.ForkSandboxRequest{SandboxId: "nothing"})
	refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "", "nothing")
	_, err = f.SnapshotSandbox(ctx, &agboxv1.SnapshotSandboxRequest{SandboxId: "box-1", SnapshotId: "-"})
	refused(t, err, codes.InvalidArgument, "INVALID_SNAPSHOT_ID", "snapshot_id", "is not a snapshot id; use 4 to 200")
	_, err = f.SnapshotSandbox(ctx, &agboxv1.SnapshotSandboxRequest{SandboxId: "box-1", Labels: map[string]string{"": "x"}})
	refused(t, err, codes.InvalidArgument, "LABEL_INVALID", "labels", "empty key")
	_, err = f.ListSnapshots(ctx, &agboxv1.ListSnapshotsRequest{LabelSelector: map[string]string{"": "x"}})
	refused(t, err, codes.InvalidArgument, "LABEL_INVALID", "label_selector", "empty key")
	_, err = f.ForkSandbox(ctx, &agboxv1.ForkSandboxRequest{SandboxId: "box-1", ForkId: "-"})
	refused(t, err, codes.InvalidArgument, "INVALID_SANDBOX_ID", "fork_id")
	_, err = f.ForkSandbox(ctx, &agboxv1.ForkSandboxRequest{SandboxId: "box-1", CreateSpec: &agboxv1.CreateSpec{Image: "other"}})
	refused(t, err, codes.InvalidArgument, "SNAPSHOT_IMAGE_CONFLICT", "create_spec.image", "other")
	_, err = f.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SnapshotId: "kept", ConfigYaml: []byte("image: other")})
	refused(t, err, codes.InvalidArgument, "SNAPSHOT_IMAGE_CONFLICT", "create_spec.image", "other")
	_, err = f.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SnapshotId: "nothing"})
	refused(t, err, codes.NotFound, "SNAPSHOT_NOT_FOUND", "", "there is no snapshot nothing")

	forked, err := f.ForkSandbox(marked, &agboxv1.ForkSandboxRequest{SandboxId: "box-1", ForkId: "fork-1"})
	if err != nil {
		t.Fatal(err)
	}
	repeated, err := f.ForkSandbox(marked, &agboxv1.ForkSandboxRequest{SandboxId: "box-1", ForkId: "fork-1"})
	if err != nil || !proto.Equal(repeated.Sandbox.CreatedAt, forked.Sandbox.CreatedAt) {
		t.Errorf("the same fork again: %v, %v", repeated, err)
	}
	for _, id := range []string{"fork-1", "box-1", "gone"} {
		_, err = f.ForkSandbox(ctx, &agboxv1.ForkSandboxRequest{SandboxId: "box-1", ForkId: id})
		refused(t, err, codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS", "", id)
	}
	// What a daemon left that died before the fork was accepted is no obstacle.
	if _, err := fake.CreateSnapshot(ctx, runtime.Snapshot{ForkID: "fork-2", Snapshot: &agboxv1.Snapshot{
		SnapshotId: runtime.ForkSnapshotID("fork-2"), SandboxId: "box-1"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ForkSandbox(ctx, &agboxv1.ForkSandboxRequest{SandboxId: "box-1", ForkId: "fork-2"}); err != nil {
		t.Error(err)
	}
	_, err = f.ForkSandbox(marked, &agboxv1.ForkSandboxRequest{SandboxId: "box-1", ForkId: "gone"})
	refused(t, err, codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS", "", "gone")
	if overlaps := fake.Overlaps(); len(overlaps) > 0 {
		t.Errorf("a snapshot was made during something else: %v", overlaps)
	}
}
