package mount

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	dockermount "github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/volume"
	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/hostpath"
	"github.com/agbox-dev/agbox/oplog"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// A copy-on-write mount of a directory is a volume of the engine's local driver, an overlay of the source and of a layer
// that is the sandbox's own:
//
//	layers/<sandbox>/<index of the mount>/lower   link to the source, whose name may have what options cannot
//	                                     /upper   what the sandbox wrote
//	                                     /work    the kernel's
//	                                     /made    from when on the sandbox may have written
//
// Of a file there is a copy in upper's place, which is bound.
const (
	layerLower = "lower"
	layerUpper = "upper"
	layerWork  = "work"
	layerMade  = "made"
)

// modeCopyOnWrite is MountSpec.mode of such a mount.
const modeCopyOnWrite = "cow"

// CodeNotLayered is the error code of a sandbox whose mount the engine's host could not lay a layer over.
const CodeNotLayered = "MOUNT_COW_FAILED"

func (ms *Mounts) layers(sandboxID string) string {
	return filepath.Join(ms.config.DataDir, Layers, sandboxID)
}
func (ms *Mounts) layer(sandboxID string, index int) string {
	return filepath.Join(ms.layers(sandboxID), strconv.Itoa(index))
}

// volumeName is unique: an id has no dot.
func volumeName(sandboxID string, index int) string {
	return "agbox-cow-" + sandboxID + "." + strconv.Itoa(index)
}

// CopyOnWrite returns why no sandbox can have copy-on-write mounts, nil when they can. Whether a source can have one is not
// in it.
func (ms *Mounts) CopyOnWrite() error {
	host := ms.engine.DaemonHost()
	switch {
	case !strings.HasPrefix(host, "unix://"):
		return fmt.Errorf("the engine at %s does not share this host's files", host)
	case ms.config.Elsewhere != "":
		return errors.New(ms.config.Elsewhere)
	case strings.ContainsAny(ms.config.DataDir, `,:\`):
		return fmt.Errorf("the daemon's data directory %s has a comma, colon or backslash in its name, which an overlay's options cannot have", ms.config.DataDir)
	}
	var on unix.Statfs_t
	if err := unix.Statfs(ms.config.DataDir, &on); err != nil {
		return fmt.Errorf("the daemon's data directory: %w", err)
	}
	switch on.Type {
	case unix.OVERLAYFS_SUPER_MAGIC, unix.NFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.V9FS_MAGIC:
		return fmt.Errorf("the daemon's data directory %s lies on a file system (type %#x) that cannot hold the layers of an overlay; put it on a local disk with XDG_DATA_HOME", ms.config.DataDir, on.Type)
	}
	return nil
}

// Make makes layers and volumes for the spec's copy-on-write mounts. What is left of an earlier try goes.
func (ms *Mounts) Make(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) error {
	if err := ms.sweepLayers(ctx, sandboxID); err != nil {
		return err
	}
	for i, m := range spec.Mounts {
		if m.Mode != modeCopyOnWrite {
			continue
		}
		err := ms.makeLayer(ctx, sandboxID, i, m)
		if engine.Code(err) != "" {
			return err
		}
		if err != nil {
			return engine.Coded(CodeNotLayered, "cannot make the layer of mount %s: %w", m.Target, err)
		}
	}
	return nil
}

func (ms *Mounts) makeLayer(ctx context.Context, sandboxID string, index int, m *agboxv1.MountSpec) (err error) {
	defer oplog.Step(ctx, "made", "layer of %s", m.Target)(&err)
	dir := ms.layer(sandboxID, index)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	held, err := hostpath.Verify(m.Source, hostpath.FromMessage(m.Accepted))
	if err != nil {
		return Changed(err)
	}
	defer held.Close()
	source, err := held.Stat()
	switch {
	case err != nil:
		return err
	case !source.IsDir():
		if err := copyFile(ctx, hostpath.Held(held), filepath.Join(dir, layerUpper)); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, layerMade), nil, 0o600)
	}
	for _, name := range []string{layerUpper, layerWork} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
	}
	if err := os.Symlink(m.Source, filepath.Join(dir, layerLower)); err != nil {
		return err
	}
	// The mount's root has the attributes of the upper directory.
	if err := resemble(filepath.Join(dir, layerUpper), source); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, layerMade), nil, 0o600); err != nil {
		return err
	}
	return ms.makeVolume(ctx, sandboxID, index)
}

// Hold has the layers lie over the very directories that were accepted, whatever becomes of their paths meanwhile, until
// release is called: an overlay that is mounted then is over these. The engine's process has to see this one's in /proc.
func (ms *Mounts) Hold(sandboxID string, spec *agboxv1.CreateSpec) (release func() error, err error) {
	var undo []func() error
	release = func() error {
		var errs []error
		for _, do := range undo {
			errs = append(errs, do())
		}
		return errors.Join(errs...)
	}
	for i, m := range spec.Mounts {
		if m.Mode != modeCopyOnWrite || privateCopy(m) {
			continue
		}
		held, err := hostpath.Verify(m.Source, hostpath.FromMessage(m.Accepted))
		if err != nil {
			return nil, errors.Join(Changed(err), release())
		}
		lower := filepath.Join(ms.layer(sandboxID, i), layerLower)
		undo = append(undo, func() error { return errors.Join(relink(m.Source, lower), held.Close()) })
		if err := relink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), held.Fd()), lower); err != nil {
			return nil, errors.Join(err, release())
		}
	}
	return release, nil
}

// relink puts a link in place of another one.
func relink(target, path string) error {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// resemble gives path the owner and mode of another. A daemon that may not give files away keeps them.
func resemble(path string, other fs.FileInfo) error {
	if as, ok := other.Sys().(*syscall.Stat_t); ok {
		if err := os.Lchown(path, int(as.Uid), int(as.Gid)); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return os.Chmod(path, other.Mode().Perm()|other.Mode()&(os.ModeSetgid|os.ModeSticky))
}

// copyFile makes a private copy of a regular file, with its owner, mode and time.
func copyFile(ctx context.Context, from, to string) error {
	source, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file any more", from)
	}
	if err != nil {
		return err
	}
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { source.Close() })()
	if _, err = io.Copy(target, source); err == nil {
		err = resemble(to, info)
	}
	if err = errors.Join(err, target.Close()); err == nil {
		err = os.Chtimes(to, info.ModTime(), info.ModTime())
	}
	return err
}

// layerOptions say that renamed directories and changed attributes are copied, so that the upper directory is the list of
// what changed, and that nothing in there is a device or gives its owner's rights.
const layerOptions = ",redirect_dir=nofollow,metacopy=off,index=off,nosuid,nodev"

func (ms *Mounts) volumeOptions(sandboxID string, index int) map[string]string {
	dir := ms.layer(sandboxID, index)
	return map[string]string{"type": "overlay", "device": "overlay", "o": "lowerdir=" + filepath.Join(dir, layerLower) +
		",upperdir=" + filepath.Join(dir, layerUpper) + ",workdir=" + filepath.Join(dir, layerWork) + layerOptions}
}

func (ms *Mounts) makeVolume(ctx context.Context, sandboxID string, index int) error {
	ctx, cancel := ms.engine.Write(ctx)
	defer cancel()
	want := volume.CreateOptions{Name: volumeName(sandboxID, index), Driver: "local",
		DriverOpts: ms.volumeOptions(sandboxID, index), Labels: ms.engine.Labels(sandboxID, engine.ComponentLayer, nil)}
	made, err := ms.engine.VolumeCreate(ctx, want)
	switch {
	case err != nil:
		return fmt.Errorf("cannot create volume %s: %w", want.Name, err)
	case !ms.engine.Owns(made.Labels, sandboxID) || made.Options["o"] != want.DriverOpts["o"]:
		return fmt.Errorf("volume %s is there already and not this sandbox's: remove it, or choose another sandbox id", want.Name)
	}
	return nil
}

// List is how the primary gets the spec's mounts.
func (ms *Mounts) List(sandboxID string, spec *agboxv1.CreateSpec) (list []dockermount.Mount) {
	for i, m := range spec.Mounts {
		if m.Mode == modeCopyOnWrite {
			list = append(list, ms.layerMount(sandboxID, i, m.Target))
		} else {
			list = append(list, ms.given(m))
		}
	}
	return list
}

func (ms *Mounts) layerMount(sandboxID string, index int, target string) dockermount.Mount {
	upper := filepath.Join(ms.layer(sandboxID, index), layerUpper)
	if info, err := os.Lstat(upper); err == nil && !info.IsDir() {
		return dockermount.Mount{Type: dockermount.TypeBind, Source: upper, Target: target}
	}
	return dockermount.Mount{Type: dockermount.TypeVolume, Source: volumeName(sandboxID, index), Target: target,
		VolumeOptions: &dockermount.VolumeOptions{NoCopy: true}}
}

// Missing returns what is missing of the sandbox's layers, "" for nothing: an engine makes an empty volume in place of
// one that is gone.
func (ms *Mounts) Missing(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (missing string, err error) {
	var volumes map[string]bool
	for i, m := range spec.Mounts {
		if m.Mode != modeCopyOnWrite {
			continue
		}
		upper, err := os.Lstat(filepath.Join(ms.layer(sandboxID, i), layerUpper))
		if errors.Is(err, fs.ErrNotExist) {
			return "the layer of " + m.Target, nil
		} else if err != nil {
			return "", err
		}
		if volumes == nil {
			if volumes, err = ms.volumes(ctx, sandboxID); err != nil {
				return "", err
			}
		}
		if name := volumeName(sandboxID, i); upper.IsDir() && !volumes[name] {
			return "volume " + name, nil
		}
	}
	return "", nil
}

// volumes returns the names of the sandbox's volumes.
func (ms *Mounts) volumes(ctx context.Context, sandboxID string) (map[string]bool, error) {
	list, err := ms.engine.VolumeList(ctx, volume.ListOptions{Filters: ms.engine.Mine(sandboxID)})
	if err != nil {
		return nil, fmt.Errorf("cannot list volumes: %w", err)
	}
	names := map[string]bool{}
	for _, v := range list.Volumes {
		names[v.Name] = true
	}
	return names, nil
}

// Remove removes the sandbox's volumes and then its layers. Its containers are gone.
func (ms *Mounts) Remove(ctx context.Context, sandboxID string) error {
	names, err := ms.volumes(ctx, sandboxID)
	if err != nil {
		return err
	}
	for name := range names {
		if err := ms.removeVolume(ctx, name); err != nil {
			return err
		}
	}
	return ms.sweepLayers(ctx, sandboxID)
}

func (ms *Mounts) removeVolume(ctx context.Context, name string) (err error) {
	defer oplog.Step(ctx, "removed", "volume %s", name)(&err)
	if err := ms.engine.VolumeRemove(ctx, name, false); err != nil && !engine.IsNotFound(err) {
		return fmt.Errorf("cannot remove volume %s: %w", name, err)
	}
	return nil
}

// Inventory counts volumes, and layers of which no volume was made any more, among the objects of these.
func (ms *Mounts) Inventory(ctx context.Context, objects map[string]bool) error {
	list, err := ms.engine.VolumeList(ctx, volume.ListOptions{Filters: ms.engine.Mine("")})
	if err != nil {
		return fmt.Errorf("dockerrt: cannot list volumes: %w", err)
	}
	for _, v := range list.Volumes {
		id := v.Labels[engine.LabelSandbox]
		objects[id] = objects[id] || v.Labels[engine.LabelOwner] != ms.engine.Process()
	}
	entries, err := os.ReadDir(ms.layers(""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("dockerrt: cannot list layers: %w", err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil {
			objects[entry.Name()] = objects[entry.Name()] || info.ModTime().Before(ms.engine.Started())
		}
	}
	return nil
}
