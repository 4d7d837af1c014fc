package dockerrt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"syscall"

	"github.com/docker/docker/api/types/mount"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/hostpath"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// codeSourceChanged is the code of a FAILED event: a sandbox would get something else of the host than was accepted.
const codeSourceChanged = "MOUNT_SOURCE_CHANGED"

// Places are what of this host no sandbox may have: the configured ones, and those of the engine.
func (d *Docker) Places() hostpath.Places {
	places := d.config.Places
	places.Own = slices.Concat(places.Own, []string{d.config.DataDir})
	places.Engine, places.EngineRoot = d.api.DaemonHost(), d.root
	return places
}

// ReadOnlyBelow reports whether the engine makes what is mounted in the source of a read-only mount read-only as well.
func (d *Docker) ReadOnlyBelow() bool { return d.readOnlyBelow }

// given is a mount of the spec that is the host's own. What is mounted in the source later does not appear inside.
func (d *Docker) given(m *agboxv1.MountSpec) mount.Mount {
	to := mount.Mount{Type: mount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: !m.Writable}
	if to.ReadOnly && d.readOnlyBelow {
		to.BindOptions = &mount.BindOptions{ReadOnlyForceRecursive: true, Propagation: mount.PropagationRPrivate}
	}
	return to
}

// checkSources fails unless the source of every mount is what was accepted and may be had. It is for right before the engine
// resolves the paths; confirmMounts is for right after. made: the sandbox has its copies of files already.
func (d *Docker) checkSources(spec *agboxv1.CreateSpec, made bool) error {
	if len(spec.Mounts) == 0 {
		return nil
	}
	guard := d.Places().Guard()
	table, err := hostpath.Mounts("self")
	if err != nil {
		return fmt.Errorf("cannot read the table of mounts: %w", err)
	}
	for _, m := range spec.Mounts {
		if made && privateCopy(m) {
			continue
		}
		file, err := hostpath.Verify(m.Source, hostpath.FromMessage(m.Accepted))
		if err != nil {
			return changed(err)
		}
		file.Close()
		if err := guard.Mount(m.Source); err != nil {
			return changed(err)
		}
		below := hostpath.Below(table, m.Source)
		at := slices.IndexFunc(below, func(b hostpath.Mount) bool { return !b.ReadOnly })
		if at >= 0 && !m.Writable && m.Mode != modeCopyOnWrite && !d.readOnlyBelow {
			return changed(fmt.Errorf("%q cannot be mounted read-only any more: %q is mounted in it, and this engine would leave that writable", m.Source, below[at].Point))
		}
	}
	return nil
}

// confirmMounts fails unless the primary, which was just started and in which nothing runs yet but agbox-init, has the sources
// that were accepted: between checkSources and the engine's own look at a path somebody may have put a link there. What
// another system, or another kernel, shows to the sandbox cannot be seen from here: a relayed sandbox is not looked at.
func (d *Docker) confirmMounts(ctx context.Context, sandboxID string, link *sandboxLink, spec *agboxv1.CreateSpec) error {
	if len(spec.Mounts) == 0 || d.layout.relayed(sandboxID) {
		return nil
	}
	b, err := d.box(ctx, sandboxID)
	if err != nil {
		return err
	}
	pid := valueOf(b.State).Pid
	inside, err := hostpath.Mounts(strconv.Itoa(pid))
	switch {
	case pid == 0, errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH), err == nil && len(inside) == 0:
		return nil // it has ended, which boot tells
	case err != nil:
		return fmt.Errorf("what is mounted in the sandbox cannot be compared with what was accepted: %w: mount /proc without hidepid", err)
	}
	ours, err := hostpath.Mounts("self")
	if err != nil {
		return fmt.Errorf("cannot read the table of mounts: %w", err)
	}
	for _, m := range spec.Mounts {
		if privateCopy(m) {
			continue
		}
		file, err := hostpath.Verify(m.Source, hostpath.FromMessage(m.Accepted))
		if err != nil {
			return changed(err)
		}
		if m.Mode == modeCopyOnWrite { // it was held at the start, see holdLowers
			file.Close()
			continue
		}
		want, err := hostpath.Bound(ours, file, m.Source)
		file.Close()
		if err != nil {
			return err
		}
		got, found := hostpath.On(inside, m.Target)
		if !found {
			at, err := b.resolve(ctx, m.Target) // the image has links on the way
			if err != nil {
				return err
			}
			got, _ = hostpath.On(inside, at.path)
		}
		if got.Device != want.Device || got.Root != want.Root {
			return changed(fmt.Errorf("%q was exchanged while the sandbox started, for %q of device %s", m.Source, got.Root, got.Device))
		}
	}
	link.found(pid)
	return nil
}

// privateCopy: the sandbox has a copy of a file, and not the source.
func privateCopy(m *agboxv1.MountSpec) bool {
	return m.Mode == modeCopyOnWrite && m.Accepted.GetKind() == "file"
}

// changed is what a person hears of a source that is not what was accepted.
func changed(err error) error {
	return engine.Coded(codeSourceChanged, "%w: a sandbox starts with nothing else than what was accepted: see who changed that, and fork the sandbox "+
		"for one with its files and the mounts as they are now, or delete it", err)
}
