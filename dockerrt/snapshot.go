package dockerrt

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/filters"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/docker/go-units"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Labels of a snapshot's image. What is made from it inherits them, so no container is found by one of these, and no
// image by a label of a container.
const (
	labelSnapshot         = engine.LabelNamespace + ".snapshot-"
	labelSnapshotID       = labelSnapshot + "id"
	labelSnapshotInstance = labelSnapshot + "instance"
	labelSnapshotOwner    = labelSnapshot + "owner"
	labelSnapshotSandbox  = labelSnapshot + "sandbox-id"
	labelSnapshotCreated  = labelSnapshot + "created-at"
	labelSnapshotRequest  = labelSnapshot + "request-id"
	// labelSnapshotFork holds the fork's sandbox id.
	labelSnapshotFork = labelSnapshot + "fork-id"
	// labelSnapshotSpec holds the spec as base64 of its protobuf, without any variables: everybody may read an image's labels.
	labelSnapshotSpec = labelSnapshot + "spec"
	labelSnapshotUser = labelSnapshot + "user."
)

// snapshotPrefix begins the names of the images of snapshots.
const snapshotPrefix = "agbox-snapshot:"

// snapshotTime bounds the making of a snapshot: tens of gigabytes on a slow disk.
const snapshotTime = 10 * time.Minute

// SnapshotImage returns the reference of the snapshot's image. A tag holds 128 characters of an id's 200, and all daemons
// of an engine share the name: the sum makes it this one's alone.
func (d *Docker) SnapshotImage(snapshotID string) string {
	sum := sha256.Sum256([]byte(d.api.Instance() + "/" + snapshotID))
	return snapshotPrefix + snapshotID[:min(len(snapshotID), 100)] + "." + hex.EncodeToString(sum[:8])
}

// CreateSnapshot keeps the sandbox's primary as an image, which has the configuration of the image that the sandbox was
// made from. The caller sees to it that nothing changes the sandbox meanwhile, and that the id is asked for once at a time.
// It takes 10 minutes at most. It fails with runtime.ErrSnapshotIDTaken and runtime.ErrNothingToKeep; then, when ctx ends, and when
// the daemon dies, no snapshot is there.
func (d *Docker) CreateSnapshot(ctx context.Context, want runtime.Snapshot) (runtime.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTime)
	defer cancel()
	defer context.AfterFunc(d.api.Closed(), cancel)()
	made, err := d.createSnapshot(ctx, want)
	return made, engine.Unreachable(err)
}

func (d *Docker) createSnapshot(ctx context.Context, want runtime.Snapshot) (runtime.Snapshot, error) {
	primary, err := d.api.InspectPrimary(ctx, want.SandboxId)
	if engine.IsNotFound(err) {
		return want, fmt.Errorf("%w: the primary container is gone", runtime.ErrNothingToKeep)
	} else if err != nil {
		return want, fmt.Errorf("cannot inspect container %s: %w", engine.PrimaryName(want.SandboxId), err)
	}
	base, err := d.api.ImageInspect(ctx, primary.Image)
	if engine.IsNotFound(err) {
		return want, fmt.Errorf("%w: image %s, which the sandbox was made from, is gone", runtime.ErrNothingToKeep, primary.Image)
	} else if err != nil {
		return want, fmt.Errorf("cannot inspect image %s: %w", primary.Image, err)
	}
	image := d.SnapshotImage(want.SnapshotId)
	if _, err := d.api.ImageInspect(ctx, image); err == nil {
		return want, fmt.Errorf("%w: the engine holds image %s", runtime.ErrSnapshotIDTaken, image)
	} else if !engine.IsNotFound(err) {
		return want, fmt.Errorf("cannot look for image %s: %w", image, err)
	}
	want.Snapshot = proto.CloneOf(want.Snapshot)
	want.Image, want.CreatedAt, want.Fork = image, timestamppb.Now(), want.ForkID != ""
	labels, err := d.snapshotLabels(want)
	if err != nil {
		return want, err
	}
	want.Tell("measuring", 0)
	size, err := d.fits(ctx, primary.ID)
	if err != nil {
		return want, err
	}
	want.Tell("reading", size)
	if primary.State.Running && !primary.State.Paused {
		// The engine's commit pauses the container, and no timeout of an exec goes on meanwhile.
		if err := d.freeze(ctx, want.SandboxId); err != nil {
			d.tellThawed(want.SandboxId)
			return want, fmt.Errorf("cannot halt the clocks of sandbox %s: %w", want.SandboxId, err)
		}
		defer d.tellThawed(want.SandboxId)
	}
	if err := d.layout.keepSpec(image, want.Spec); err != nil {
		return want, err
	}
	rough, err := d.commit(ctx, primary, base, image, labels)
	if err == nil {
		want.Tell("keeping", size)
		want.SizeBytes, err = d.keep(ctx, rough, base, want.CreatedAt.AsTime(), image, labels)
	}
	if err != nil {
		return want, errors.Join(err, d.layout.dropSpec(image))
	}
	return want, nil
}

// withoutVariables is a spec that anybody may read.
func withoutVariables(spec *agboxv1.CreateSpec) *agboxv1.CreateSpec {
	spec = proto.CloneOf(spec)
	spec.Envs = nil
	for _, service := range slices.Concat(spec.RequiredServices, spec.OptionalServices) {
		service.Envs = nil
	}
	return spec
}

// fits refuses a container whose own files, whose size it returns, are more than a snapshot may have, or than the engine has room for.
func (d *Docker) fits(ctx context.Context, id string) (size uint64, err error) {
	found, _, err := d.api.ContainerInspectWithRaw(ctx, id, true)
	if err != nil || found.SizeRw == nil {
		return 0, err
	}
	size = uint64(*found.SizeRw)
	if d.config.MaxSnapshot > 0 && size > d.config.MaxSnapshot {
		return size, fmt.Errorf("%w: its files beyond the image have %s, holes counted, and limits.max_snapshot allows %s: remove what is not needed, or have the operator raise it",
			runtime.ErrSnapshotTooLarge, units.BytesSize(float64(size)), units.BytesSize(float64(d.config.MaxSnapshot)))
	}
	var disk unix.Statfs_t
	if d.root == "" || unix.Statfs(d.root, &disk) != nil {
		return size, nil
	}
	if left := disk.Bavail * uint64(disk.Bsize); size+d.config.DiskHeadroom > left {
		return size, fmt.Errorf("%w: its files beyond the image have %s, holes counted, and %s has %s left, of which limits.disk_headroom keeps %s: delete snapshots or other files",
			runtime.ErrSnapshotTooLarge, units.BytesSize(float64(size)), d.root, units.BytesSize(float64(left)), units.BytesSize(float64(d.config.DiskHeadroom)))
	}
	return size, nil
}

func (d *Docker) snapshotLabels(s runtime.Snapshot) (map[string]string, error) {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(withoutVariables(s.Spec))
	if err != nil {
		return nil, fmt.Errorf("dockerrt: cannot write the spec down: %w", err)
	}
	labels := map[string]string{
		labelSnapshotID:       s.SnapshotId,
		labelSnapshotInstance: d.api.Instance(),
		labelSnapshotOwner:    d.api.Process(),
		labelSnapshotSandbox:  s.SandboxId,
		labelSnapshotCreated:  s.CreatedAt.AsTime().Format(time.RFC3339Nano),
		labelSnapshotRequest:  s.RequestID,
		labelSnapshotFork:     s.ForkID,
		labelSnapshotSpec:     base64.StdEncoding.EncodeToString(encoded),
	}
	for key, value := range s.Labels {
		labels[labelSnapshotUser+key] = value
	}
	return labels, nil
}

// Snapshots lists this daemon's snapshots, those of forks included, in no order.
func (d *Docker) Snapshots(ctx context.Context) ([]runtime.Snapshot, error) {
	ctx, cancel := d.api.Read(ctx)
	defer cancel()
	images, err := d.snapshotImages(ctx)
	if err != nil {
		return nil, engine.Unreachable(err)
	}
	var list []runtime.Snapshot
	for _, image := range images {
		if !slices.Contains(image.RepoTags, d.SnapshotImage(image.Labels[labelSnapshotID])) {
			continue
		}
		if s, err := d.snapshotOf(image.Labels, image.Size); err != nil {
			d.log.Warn("a snapshot cannot be read", "image", image.ID, "error", err)
		} else {
			list = append(list, s)
		}
	}
	return list, nil
}

func (d *Docker) snapshotImages(ctx context.Context) ([]dockerimage.Summary, error) {
	images, err := d.api.ImageList(ctx, dockerimage.ListOptions{
		Filters: filters.NewArgs(filters.Arg("label", labelSnapshotInstance+"="+d.api.Instance())),
	})
	if err != nil {
		return nil, fmt.Errorf("dockerrt: cannot list images: %w", err)
	}
	return images, nil
}

// snapshotOf reads what snapshotLabels wrote.
func (d *Docker) snapshotOf(labels map[string]string, size int64) (runtime.Snapshot, error) {
	encoded, err := base64.StdEncoding.DecodeString(labels[labelSnapshotSpec])
	if err != nil {
		return runtime.Snapshot{}, fmt.Errorf("label %s: %w", labelSnapshotSpec, err)
	}
	spec := &agboxv1.CreateSpec{}
	if err := proto.Unmarshal(encoded, spec); err != nil {
		return runtime.Snapshot{}, fmt.Errorf("label %s: %w", labelSnapshotSpec, err)
	}
	if whole, err := d.layout.keptSpec(d.SnapshotImage(labels[labelSnapshotID])); err == nil {
		spec = whole
	} else if !errors.Is(err, fs.ErrNotExist) {
		return runtime.Snapshot{}, err
	}
	created, err := time.Parse(time.RFC3339Nano, labels[labelSnapshotCreated])
	if err != nil {
		return runtime.Snapshot{}, fmt.Errorf("label %s: %w", labelSnapshotCreated, err)
	}
	s := runtime.Snapshot{ForkID: labels[labelSnapshotFork], RequestID: labels[labelSnapshotRequest], Snapshot: &agboxv1.Snapshot{
		SnapshotId: labels[labelSnapshotID], SandboxId: labels[labelSnapshotSandbox], Labels: map[string]string{},
		CreatedAt: timestamppb.New(created), SizeBytes: uint64(size), Spec: spec, Fork: labels[labelSnapshotFork] != "",
		Image: d.SnapshotImage(labels[labelSnapshotID]),
	}}
	for key, value := range labels {
		if name, ours := strings.CutPrefix(key, labelSnapshotUser); ours {
			s.Labels[name] = value
		}
	}
	return s, nil
}

// Snapshot returns the snapshot, or fails with runtime.ErrSnapshotNotFound.
func (d *Docker) Snapshot(ctx context.Context, snapshotID string) (runtime.Snapshot, error) {
	ctx, cancel := d.api.Read(ctx)
	defer cancel()
	found, err := d.api.ImageInspect(ctx, d.SnapshotImage(snapshotID))
	if engine.IsNotFound(err) || err == nil && (found.Config == nil || !d.keeps(found.Config.Labels, snapshotID)) {
		return runtime.Snapshot{}, fmt.Errorf("%w: %s", runtime.ErrSnapshotNotFound, snapshotID)
	} else if err != nil {
		return runtime.Snapshot{}, engine.Unreachable(fmt.Errorf("cannot inspect image %s: %w", d.SnapshotImage(snapshotID), err))
	}
	return d.snapshotOf(found.Config.Labels, found.Size)
}

// keeps reports whether an image is this snapshot's, and this daemon's.
func (d *Docker) keeps(labels map[string]string, snapshotID string) bool {
	return labels[labelSnapshotID] == snapshotID && labels[labelSnapshotInstance] == d.api.Instance()
}

// DeleteSnapshot removes the snapshot's image. It fails with runtime.ErrSnapshotNotFound, and with runtime.ErrSnapshotInUse
// where a container of anybody's needs it.
func (d *Docker) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	s, err := d.Snapshot(ctx, snapshotID)
	if err != nil {
		return err
	}
	ctx, cancel := d.api.Write(ctx)
	defer cancel()
	err = d.removeImage(ctx, s.Image)
	if engine.IsConflict(err) {
		return fmt.Errorf("%w: %w", runtime.ErrSnapshotInUse, err)
	} else if err != nil {
		return engine.Unreachable(err)
	}
	return d.layout.dropSpec(s.Image)
}

// removeImage leaves the image's parents alone, also those without a name.
func (d *Docker) removeImage(ctx context.Context, image string) error {
	_, err := d.api.ImageRemove(ctx, image, dockerimage.RemoveOptions{})
	if err != nil && !engine.ImageGone(err) {
		return fmt.Errorf("cannot remove image %s: %w", image, err)
	}
	return nil
}

// removeFork removes what a removed sandbox was made from, if it was a fork. What cannot be removed now is an orphan for
// the next inventory.
func (d *Docker) removeFork(ctx context.Context, sandboxID string) {
	err := d.DeleteSnapshot(ctx, runtime.ForkSnapshotID(sandboxID))
	if err != nil && !errors.Is(err, runtime.ErrSnapshotNotFound) {
		d.log.Warn("the image of a fork was not removed", "sandbox_id", sandboxID, "error", err)
	}
}

// inventorySnapshots counts the images of forks among the objects of these, and removes what an earlier process left
// half made. An image that somebody made from a snapshot has its labels, so that the name decides.
func (d *Docker) inventorySnapshots(ctx context.Context, objects map[string]bool) error {
	images, err := d.snapshotImages(ctx)
	if err != nil {
		return err
	}
	kept := map[string]bool{}
	for _, image := range images {
		earlier := image.Labels[labelSnapshotOwner] != d.api.Process()
		name := d.SnapshotImage(image.Labels[labelSnapshotID])
		for _, tag := range image.RepoTags {
			if earlier && strings.HasPrefix(tag, halfMade(name)) {
				d.discard(ctx, tag, image, "its snapshot was never completed")
			}
		}
		kept[name] = true
		if fork := image.Labels[labelSnapshotFork]; fork != "" && slices.Contains(image.RepoTags, name) {
			objects[fork] = objects[fork] || earlier
		}
	}
	// An engine lists none from which another was made, such as those that are gone now.
	if images, err = d.snapshotImages(ctx); err != nil {
		return err
	}
	for _, image := range images {
		if d.deleted(ctx, image) {
			d.discard(ctx, image.ID, image, "its snapshot was deleted while others depended on it")
		}
	}
	return d.layout.dropSpecs(kept, d.config.Started)
}

func (d *Docker) discard(ctx context.Context, name string, image dockerimage.Summary, reason string) {
	err := d.removeImage(ctx, name)
	d.log.Warn("audit: image removed", "image", name, "sandbox_id", image.Labels[labelSnapshotSandbox], "reason", reason, "error", err)
}

// deleted reports whether the image is that of a snapshot which was deleted: an engine takes the name of an image that another was
// made from, and keeps the image. What is unnamed because a load is just making it is no such one. What somebody made of a
// snapshot has its labels, and was not made when they say.
func (d *Docker) deleted(ctx context.Context, image dockerimage.Summary) bool {
	made, err := time.Parse(time.RFC3339Nano, image.Labels[labelSnapshotCreated])
	loading := image.Labels[labelSnapshotOwner] == d.api.Process() && time.Since(made) < snapshotTime
	if err != nil || loading || slices.ContainsFunc(image.RepoTags, func(tag string) bool { return tag != "<none>:<none>" }) {
		return false
	}
	found, err := d.api.ImageInspect(ctx, image.ID)
	return err == nil && found.Created == image.Labels[labelSnapshotCreated]
}
