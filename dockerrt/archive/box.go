package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/docker/docker/api/types/container"
	dockermount "github.com/docker/docker/api/types/mount"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/guest/files"
	"github.com/agbox-dev/agbox/hostpath"
	"github.com/agbox-dev/agbox/paths"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// box is a primary as the engine's archive API deals with it.
type box struct {
	container.InspectResponse
	files     *Files
	sandboxID string
}

// box fails with files.ErrNotRunning when there is no container.
func (fs *Files) box(ctx context.Context, sandboxID string) (box, error) {
	found, err := fs.engine.InspectPrimary(ctx, sandboxID)
	if engine.IsNotFound(err) {
		return box{}, files.Refuse(files.ErrNotRunning, "sandbox %s has no primary container any more; delete it", sandboxID)
	}
	return box{found, fs, sandboxID}, err
}

// filesOf is box for who is about to use the archive API, for which an engine mounts by path once more what the container
// has. It fails with files.ErrRefused where a path has got a link, and where somebody runs in the sandbox who could make one.
func (fs *Files) filesOf(ctx context.Context, sandboxID string) (box, error) {
	b, err := fs.box(ctx, sandboxID)
	if err != nil {
		return b, err
	}
	guard := fs.config.Places().Guard()
	for _, m := range b.Mounts {
		if m.Type != dockermount.TypeBind || paths.Within(m.Source, fs.config.DataDir) || m.Source == fs.config.InitPath {
			continue
		}
		file, err := hostpath.Verify(m.Source, hostpath.Identity{})
		if err == nil {
			file.Close()
			err = guard.Mount(m.Source)
		}
		if err != nil {
			return b, files.Refuse(files.ErrRefused, "%v, so that no file of the sandbox can be reached through the engine, which would follow that; "+
				"see who changed it, or use an exec", err)
		}
	}
	if engine.ValueOf(b.State).Running && !b.State.Paused { // which could exchange what lies in a mount that it may write to
		return b, files.Refuse(files.ErrRefused, "sandbox %s runs while agboxd does something else with it; try again", sandboxID)
	}
	return b, nil
}

// place is what a path leads to.
type place struct {
	path      string // without links
	missing   int    // parts at its end that are not there
	directory bool   // what is there is one
}

// resolve follows all links, as the engine does: within the container's root.
func (b box) resolve(ctx context.Context, p string) (place, error) {
	at := place{path: "/", directory: true}
	for _, part := range strings.Split(strings.Trim(p, "/"), "/") {
		if part == "" {
			continue
		}
		var err error
		if at, err = b.follow(ctx, at, part, p); err != nil {
			return at, err
		}
	}
	return at, nil
}

// follow is one step of the way to p.
func (b box) follow(ctx context.Context, at place, part, p string) (place, error) {
	next := path.Join(at.path, part)
	if at.missing > 0 {
		return place{next, at.missing + 1, false}, nil
	}
	if !at.directory {
		return at, files.Refuse(files.ErrNotDirectory, "%q goes through %q, which is not a directory; StatFile tells what it is", p, at.path)
	}
	stat, err := b.stat(ctx, next)
	if err == nil && stat.Mode&os.ModeSymlink != 0 {
		next = stat.LinkTarget
		if stat, err = b.stat(ctx, next); engine.IsNotFound(err) {
			return at, files.Refuse(files.ErrNotFound, "%q goes through a link to %q, which does not exist in the sandbox; remove the link or make that", p, next)
		}
	}
	switch {
	case engine.IsNotFound(err):
		return place{next, 1, false}, nil
	case err != nil:
		return at, engineRefusal(p, err)
	}
	return place{next, 0, stat.Mode.IsDir()}, nil
}

func (b box) stat(ctx context.Context, p string) (container.PathStat, error) {
	ctx, cancel := b.files.engine.Read(ctx)
	defer cancel()
	return b.files.engine.ContainerStatPath(ctx, b.ID, p)
}

// mount returns what holds the path: the mount that is nearest above it. Root is the container's own layer.
func (b box) mount(p string) container.MountPoint {
	best := container.MountPoint{Destination: "/", RW: !b.HostConfig.ReadonlyRootfs}
	consider := func(m container.MountPoint) {
		if paths.Within(p, m.Destination) && len(m.Destination) > len(best.Destination) {
			best = m
		}
	}
	for _, m := range b.Mounts {
		consider(m)
	}
	for target := range b.HostConfig.Tmpfs {
		consider(container.MountPoint{Type: "tmpfs", Destination: target, RW: true})
	}
	for _, target := range []string{"/dev", "/proc", "/sys"} {
		consider(container.MountPoint{Type: "tmpfs", Destination: target, RW: true})
	}
	return best
}

// memory refuses a path without links that only the sandbox's processes see.
func (b box) memory(p string) error {
	if m := b.mount(p); m.Type == "tmpfs" {
		return files.Refuse(files.ErrMemory, "%q lies in %s, which is in the memory of the sandbox, where only its own processes see it; use an exec, or another path", p, m.Destination)
	}
	return nil
}

// onDisk refuses a path in memory; its last part is not followed.
func (b box) onDisk(ctx context.Context, p string) error {
	if len(b.HostConfig.Tmpfs) == 0 {
		return b.memory(p) // links into /dev and the like find nothing
	}
	at, err := b.resolve(ctx, path.Dir(p))
	if err != nil {
		return err
	}
	return b.memory(path.Join(at.path, path.Base(p)))
}

// destination finds out where a stream for a directory goes.
func (b box) destination(ctx context.Context, directory string) (destination, error) {
	at, err := b.resolve(ctx, directory)
	if err != nil {
		return destination{}, err
	}
	if at.missing == 0 && !at.directory {
		return destination{}, files.Refuse(files.ErrNotDirectory, "%q is not a directory; name the one to unpack in", directory)
	}
	if err := files.Reserved(at.path); err != nil {
		return destination{}, err
	}
	if err := b.memory(at.path); err != nil {
		return destination{}, err
	}
	to := destination{root: "/", directory: at.path, missing: at.missing}
	m := b.mount(at.path)
	if !m.RW {
		what := "the mount " + m.Destination
		if m.Destination == "/" {
			what = "the sandbox's root"
		}
		return to, files.Refuse(files.ErrReadOnly, "%q lies in %s, which is read-only; choose a path in a writable mount, or change the spec", directory, what)
	}
	if b.HostConfig.ReadonlyRootfs {
		to.root = m.Destination // the engine refuses to begin at a root that is read-only
	}
	return to, nil
}

// owner resolves whom an upload is for, as agbox-init would for an exec: its own options say what the spec and the image
// have.
func (b box) owner(ctx context.Context, owner string) (files.Account, error) {
	var accounts files.Accounts
	var err error
	if accounts.Passwd, err = b.text(ctx, "/etc/passwd"); err == nil {
		accounts.Group, err = b.text(ctx, "/etc/group")
	}
	switch {
	case err != nil:
		return files.Account{}, err
	case owner != "":
		return accounts.Lookup(owner)
	}
	user, err := b.user()
	if err != nil {
		return files.Account{}, err
	}
	return accounts.Rule(user, b.option("--image-user="))
}

// user is the spec's. A container that was made ahead does not have it.
func (b box) user() (string, error) {
	text, err := os.ReadFile(b.files.config.SpecFile(b.sandboxID))
	if errors.Is(err, os.ErrNotExist) {
		return b.option("--user="), nil
	}
	spec := &agboxv1.CreateSpec{}
	if err == nil {
		err = protojson.Unmarshal(text, spec)
	}
	if err != nil {
		return "", fmt.Errorf("dockerrt: cannot tell whose files of sandbox %s are: %w", b.sandboxID, err)
	}
	return spec.User, nil
}

func (b box) option(name string) string {
	for _, word := range b.Config.Entrypoint {
		if value, found := strings.CutPrefix(word, name); found {
			return value
		}
	}
	return ""
}

// maxAccounts bounds an account file in bytes, as agbox-init does.
const maxAccounts = 4 << 20

// text returns a small file; "" when there is none, or something else.
func (b box) text(ctx context.Context, p string) (string, error) {
	ctx, cancel := b.files.engine.Read(ctx)
	defer cancel()
	at, err := b.resolve(ctx, p)
	if errors.Is(err, files.ErrNotFound) || errors.Is(err, files.ErrNotDirectory) || err == nil && (at.missing > 0 || at.directory) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	stream, err := b.read(ctx, at.path)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	in := tar.NewReader(stream)
	header, err := in.Next()
	if err != nil || header.Typeflag != tar.TypeReg || header.Size > maxAccounts {
		return "", err
	}
	text, err := io.ReadAll(in)
	return string(text), err
}
