package snapshot

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
	labelPrefix   = engine.LabelNamespace + ".snapshot-"
	labelID       = labelPrefix + "id"
	labelInstance = labelPrefix + "instance"
	labelOwner    = labelPrefix + "owner"
	labelSandbox  = labelPrefix + "sandbox-id"
	labelCreated  = labelPrefix + "created-at"
	labelRequest  = labelPrefix + "request-id"
	// labelFork holds the fork's sandbox id.
	labelFork = labelPrefix + "fork-id"
	// labelSpec holds the spec as base64 of its protobuf, without any variables: everybody may read an image's labels.
	labelSpec = labelPrefix + "spec"
	labelUser = labelPrefix + "user."
)

// namePrefix begins the names of the images of snapshots.
const namePrefix = "agbox-snapshot:"

// maxTime bounds the making of a snapshot: tens of gigabytes on a slow disk.
const maxTime = 10 * time.Minute

// Image returns the reference of the snapshot's image. A tag holds 128 characters of an id's 200, and all daemons
// of an engine share the name: the sum makes it this one's alone.
func (st *Store) Image(snapshotID string) string {
	sum := sha256.Sum256([]byte(st.engine.Instance() + "/" + snapshotID))
	return namePrefix + snapshotID[:min(len(snapshotID), 100)] + "." + hex.EncodeToString(sum[:8])
}

// Create keeps the sandbox's primary as an image, which has the configuration of the image that the sandbox was
// made from. The caller sees to it that nothing changes the sandbox meanwhile, and that the id is asked for once at a time.
// It takes 10 minutes at most. It fails with runtime.ErrSnapshotIDTaken and runtime.ErrNothingToKeep; then, when ctx ends, and when
// the daemon dies, no snapshot is there.
func (st *Store) Create(ctx context.Context, want runtime.Snapshot) (_ runtime.Snapshot, err error) {
	defer engine.Mark(&err)
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	defer context.AfterFunc(st.engine.Closed(), cancel)()
	primary, err := st.engine.InspectPrimary(ctx, want.SandboxId)
	if engine.IsNotFound(err) {
		return want, fmt.Errorf("%w: the primary container is gone", runtime.ErrNothingToKeep)
	} else if err != nil {
		return want, fmt.Errorf("cannot inspect container %s: %w", engine.PrimaryName(want.SandboxId), err)
	}
	base, err := st.engine.ImageInspect(ctx, primary.Image)
	if engine.IsNotFound(err) {
		return want, fmt.Errorf("%w: image %s, which the sandbox was made from, is gone", runtime.ErrNothingToKeep, primary.Image)
	} else if err != nil {
		return want, fmt.Errorf("cannot inspect image %s: %w", primary.Image, err)
	}
	image := st.Image(want.SnapshotId)
	if _, err := st.engine.ImageInspect(ctx, image); err == nil {
		return want, fmt.Errorf("%w: the engine holds image %s", runtime.ErrSnapshotIDTaken, image)
	} else if !engine.IsNotFound(err) {
		return want, fmt.Errorf("cannot look for image %s: %w", image, err)
	}
	want.Snapshot = proto.CloneOf(want.Snapshot)
	want.Image, want.CreatedAt, want.Fork = image, timestamppb.Now(), want.ForkID != ""
	labels, err := st.labels(want)
	if err != nil {
		return want, err
	}
	want.Tell("measuring", 0)
	size, err := st.fits(ctx, primary.ID)
	if err != nil {
		return want, err
	}
	want.Tell("reading", size)
	if primary.State.Running && !primary.State.Paused {
		// The engine's commit pauses the container, and no timeout of an exec goes on meanwhile.
		if err := st.config.Freeze(ctx, want.SandboxId); err != nil {
			st.config.Thaw(want.SandboxId)
			return want, fmt.Errorf("cannot halt the clocks of sandbox %s: %w", want.SandboxId, err)
		}
		defer st.config.Thaw(want.SandboxId)
	}
	if err := st.keepSpec(image, want.Spec); err != nil {
		return want, err
	}
	rough, err := st.commit(ctx, primary, base, image, labels)
	if err == nil {
		want.Tell("keeping", size)
		want.SizeBytes, err = st.keep(ctx, rough, base, want.CreatedAt.AsTime(), image, labels)
	}
	if err != nil {
		return want, errors.Join(err, st.dropSpec(image))
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
func (st *Store) fits(ctx context.Context, id string) (size uint64, err error) {
	found, _, err := st.engine.ContainerInspectWithRaw(ctx, id, true)
	if err != nil || found.SizeRw == nil {
		return 0, err
	}
	size = uint64(*found.SizeRw)
	if st.config.MaxSize > 0 && size > st.config.MaxSize {
		return size, fmt.Errorf("%w: its files beyond the image have %s, holes counted, and limits.max_snapshot allows %s: remove what is not needed, or have the operator raise it",
			runtime.ErrSnapshotTooLarge, units.BytesSize(float64(size)), units.BytesSize(float64(st.config.MaxSize)))
	}
	var disk unix.Statfs_t
	if st.config.EngineRoot == "" || unix.Statfs(st.config.EngineRoot, &disk) != nil {
		return size, nil
	}
	if left := disk.Bavail * uint64(disk.Bsize); size+st.config.DiskHeadroom > left {
		return size, fmt.Errorf("%w: its files beyond the image have %s, holes counted, and %s has %s left, of which limits.disk_headroom keeps %s: delete snapshots or other files",
			runtime.ErrSnapshotTooLarge, units.BytesSize(float64(size)), st.config.EngineRoot, units.BytesSize(float64(left)), units.BytesSize(float64(st.config.DiskHeadroom)))
	}
	return size, nil
}

func (st *Store) labels(s runtime.Snapshot) (map[string]string, error) {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(withoutVariables(s.Spec))
	if err != nil {
		return nil, fmt.Errorf("dockerrt: cannot write the spec down: %w", err)
	}
	labels := map[string]string{
		labelID:       s.SnapshotId,
		labelInstance: st.engine.Instance(),
		labelOwner:    st.engine.Process(),
		labelSandbox:  s.SandboxId,
		labelCreated:  s.CreatedAt.AsTime().Format(time.RFC3339Nano),
		labelRequest:  s.RequestID,
		labelFork:     s.ForkID,
		labelSpec:     base64.StdEncoding.EncodeToString(encoded),
	}
	for key, value := range s.Labels {
		labels[labelUser+key] = value
	}
	return labels, nil
}

// List lists this daemon's snapshots, those of forks included, in no order.
func (st *Store) List(ctx context.Context) ([]runtime.Snapshot, error) {
	ctx, cancel := st.engine.Read(ctx)
	defer cancel()
	images, err := st.images(ctx)
	if err != nil {
		return nil, engine.Unreachable(err)
	}
	var list []runtime.Snapshot
	for _, image := range images {
		if !slices.Contains(image.RepoTags, st.Image(image.Labels[labelID])) {
			continue
		}
		if s, err := st.read(image.Labels, image.Size); err != nil {
			st.log.Warn("a snapshot cannot be read", "image", image.ID, "error", err)
		} else {
			list = append(list, s)
		}
	}
	return list, nil
}

func (st *Store) images(ctx context.Context) ([]dockerimage.Summary, error) {
	images, err := st.engine.ImageList(ctx, dockerimage.ListOptions{
		Filters: filters.NewArgs(filters.Arg("label", labelInstance+"="+st.engine.Instance())),
	})
	if err != nil {
		return nil, fmt.Errorf("dockerrt: cannot list images: %w", err)
	}
	return images, nil
}

// read is the snapshot that labels are of.
func (st *Store) read(labels map[string]string, size int64) (runtime.Snapshot, error) {
	encoded, err := base64.StdEncoding.DecodeString(labels[labelSpec])
	if err != nil {
		return runtime.Snapshot{}, fmt.Errorf("label %s: %w", labelSpec, err)
	}
	spec := &agboxv1.CreateSpec{}
	if err := proto.Unmarshal(encoded, spec); err != nil {
		return runtime.Snapshot{}, fmt.Errorf("label %s: %w", labelSpec, err)
	}
	if whole, err := st.keptSpec(st.Image(labels[labelID])); err == nil {
		spec = whole
	} else if !errors.Is(err, fs.ErrNotExist) {
		return runtime.Snapshot{}, err
	}
	created, err := time.Parse(time.RFC3339Nano, labels[labelCreated])
	if err != nil {
		return runtime.Snapshot{}, fmt.Errorf("label %s: %w", labelCreated, err)
	}
	s := runtime.Snapshot{ForkID: labels[labelFork], RequestID: labels[labelRequest], Snapshot: &agboxv1.Snapshot{
		SnapshotId: labels[labelID], SandboxId: labels[labelSandbox], Labels: map[string]string{},
		CreatedAt: timestamppb.New(created), SizeBytes: uint64(size), Spec: spec, Fork: labels[labelFork] != "",
		Image: st.Image(labels[labelID]),
	}}
	for key, value := range labels {
		if name, ours := strings.CutPrefix(key, labelUser); ours {
			s.Labels[name] = value
		}
	}
	return s, nil
}

// Get returns the snapshot, or fails with runtime.ErrSnapshotNotFound.
func (st *Store) Get(ctx context.Context, snapshotID string) (runtime.Snapshot, error) {
	ctx, cancel := st.engine.Read(ctx)
	defer cancel()
	found, err := st.engine.ImageInspect(ctx, st.Image(snapshotID))
	if engine.IsNotFound(err) || err == nil && (found.Config == nil || !st.keeps(found.Config.Labels, snapshotID)) {
		return runtime.Snapshot{}, fmt.Errorf("%w: %s", runtime.ErrSnapshotNotFound, snapshotID)
	} else if err != nil {
		return runtime.Snapshot{}, engine.Unreachable(fmt.Errorf("cannot inspect image %s: %w", st.Image(snapshotID), err))
	}
	return st.read(found.Config.Labels, found.Size)
}

// keeps reports whether an image is this snapshot's, and this daemon's.
func (st *Store) keeps(labels map[string]string, snapshotID string) bool {
	return labels[labelID] == snapshotID && labels[labelInstance] == st.engine.Instance()
}

// Delete removes the snapshot's image. It fails with runtime.ErrSnapshotNotFound, and with runtime.ErrSnapshotInUse
// where a container of anybody's needs it.
func (st *Store) Delete(ctx context.Context, snapshotID string) error {
	s, err := st.Get(ctx, snapshotID)
	if err != nil {
		return err
	}
	ctx, cancel := st.engine.Write(ctx)
	defer cancel()
	err = st.removeImage(ctx, s.Image)
	if engine.IsConflict(err) {
		return fmt.Errorf("%w: %w", runtime.ErrSnapshotInUse, err)
	} else if err != nil {
		return engine.Unreachable(err)
	}
	return st.dropSpec(s.Image)
}

// removeImage leaves the image's parents alone, also those without a name.
func (st *Store) removeImage(ctx context.Context, image string) error {
	_, err := st.engine.ImageRemove(ctx, image, dockerimage.RemoveOptions{})
	if err != nil && !engine.ImageGone(err) {
		return fmt.Errorf("cannot remove image %s: %w", image, err)
	}
	return nil
}

// RemoveFork removes what a removed sandbox was made from, if it was a fork. What cannot be removed now is an orphan for
// the next inventory.
func (st *Store) RemoveFork(ctx context.Context, sandboxID string) {
	err := st.Delete(ctx, runtime.ForkSnapshotID(sandboxID))
	if err != nil && !errors.Is(err, runtime.ErrSnapshotNotFound) {
		st.log.Warn("the image of a fork was not removed", "sandbox_id", sandboxID, "error", err)
	}
}

// HalfMade reports whether an image of this name and with these labels is half a snapshot that an earlier process of this daemon
// asked for: an engine goes on with it, and nobody else looks for that.
func (st *Store) HalfMade(name string, labels map[string]string) bool {
	return strings.HasPrefix(name, halfMadePrefix) && labels[labelInstance] == st.engine.Instance() && labels[labelOwner] != st.engine.Process()
}

// Inventory counts the images of forks among the objects of these, and removes what an earlier process left
// half made. An image that somebody made from a snapshot has its labels, so that the name decides.
func (st *Store) Inventory(ctx context.Context, objects map[string]bool) error {
	images, err := st.images(ctx)
	if err != nil {
		return err
	}
	kept := map[string]bool{}
	for _, image := range images {
		earlier := image.Labels[labelOwner] != st.engine.Process()
		name := st.Image(image.Labels[labelID])
		for _, tag := range image.RepoTags {
			if earlier && strings.HasPrefix(tag, halfMade(name)) {
				st.discard(ctx, tag, image, "its snapshot was never completed")
			}
		}
		kept[name] = true
		if fork := image.Labels[labelFork]; fork != "" && slices.Contains(image.RepoTags, name) {
			objects[fork] = objects[fork] || earlier
		}
	}
	// An engine lists none from which another was made, such as those that are gone now.
	if images, err = st.images(ctx); err != nil {
		return err
	}
	for _, image := range images {
		if st.deleted(ctx, image) {
			st.discard(ctx, image.ID, image, "its snapshot was deleted while others depended on it")
		}
	}
	return st.dropSpecs(kept, st.engine.Started())
}

func (st *Store) discard(ctx context.Context, name string, image dockerimage.Summary, reason string) {
	err := st.removeImage(ctx, name)
	st.log.Warn("audit: image removed", "image", name, "sandbox_id", image.Labels[labelSandbox], "reason", reason, "error", err)
}

// deleted reports whether the image is that of a snapshot which was deleted: an engine takes the name of an image that another was
// made from, and keeps the image. What is unnamed because a load is just making it is no such one. What somebody made of a
// snapshot has its labels, and was not made when they say.
func (st *Store) deleted(ctx context.Context, image dockerimage.Summary) bool {
	made, err := time.Parse(time.RFC3339Nano, image.Labels[labelCreated])
	loading := image.Labels[labelOwner] == st.engine.Process() && time.Since(made) < maxTime
	if err != nil || loading || slices.ContainsFunc(image.RepoTags, func(tag string) bool { return tag != "<none>:<none>" }) {
		return false
	}
	found, err := st.engine.ImageInspect(ctx, image.ID)
	return err == nil && found.Created == image.Labels[labelCreated]
}
