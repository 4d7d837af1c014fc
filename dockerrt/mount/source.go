package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"syscall"

	dockermount "github.com/docker/docker/api/types/mount"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/hostpath"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// codeSourceChanged is the code of a FAILED event: a sandbox would get something else of the host than was accepted.
const codeSourceChanged = "MOUNT_SOURCE_CHANGED"

// Places are what of this host no sandbox may have: the configured ones, and those of the engine.
func (ms *Mounts) Places() hostpath.Places {
	places := ms.config.Places
	places.Own = slices.Concat(places.Own, []string{ms.config.DataDir})
	places.Engine, places.EngineRoot = ms.engine.DaemonHost(), ms.config.EngineRoot
	return places
}

// given is a mount of the spec that is the host's own. What is mounted in the source later does not appear inside.
func (ms *Mounts) given(m *agboxv1.MountSpec) dockermount.Mount {
	to := dockermount.Mount{Type: dockermount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: !m.Writable}
	if to.ReadOnly && ms.config.ReadOnlyBelow {
		to.BindOptions = &dockermount.BindOptions{ReadOnlyForceRecursive: true, Propagation: dockermount.PropagationRPrivate}
	}
	return to
}

// Check fails unless the source of every mount is what was accepted and may be had. It is for right before the engine
// resolves the paths; Confirm is for right after. made: the sandbox has its copies of files already.
func (ms *Mounts) Check(spec *agboxv1.CreateSpec, made bool) error {
	if len(spec.Mounts) == 0 {
		return nil
	}
	guard := ms.Places().Guard()
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
			return Changed(err)
		}
		file.Close()
		if err := guard.Mount(m.Source); err != nil {
			return Changed(err)
		}
		below := hostpath.Below(table, m.Source)
		at := slices.IndexFunc(below, func(b hostpath.Mount) bool { return !b.ReadOnly })
		if at >= 0 && !m.Writable && m.Mode != modeCopyOnWrite && !ms.config.ReadOnlyBelow {
			return Changed(fmt.Errorf("%q cannot be mounted read-only any more: %q is mounted in it, and this engine would leave that writable", m.Source, below[at].Point))
		}
	}
	return nil
}

// Confirm fails unless the primary, which was just started and in which nothing runs yet but agbox-init, has the sources
// that were accepted: between Check and the engine's own look at a path somebody may have put a link there. pid is that of
// agbox-init on this host; resolve follows the links that the image has on the way to a path.
func (ms *Mounts) Confirm(spec *agboxv1.CreateSpec, pid int, resolve func(target string) (string, error)) error {
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
			return Changed(err)
		}
		if m.Mode == modeCopyOnWrite { // it was held at the start, see Hold
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
			at, err := resolve(m.Target)
			if err != nil {
				return err
			}
			got, _ = hostpath.On(inside, at)
		}
		if got.Device != want.Device || got.Root != want.Root {
			return Changed(fmt.Errorf("%q was exchanged while the sandbox started, for %q of device %s", m.Source, got.Root, got.Device))
		}
	}
	return nil
}

// privateCopy: the sandbox has a copy of a file, and not the source.
func privateCopy(m *agboxv1.MountSpec) bool {
	return m.Mode == modeCopyOnWrite && m.Accepted.GetKind() == "file"
}

// Changed is what a person hears of a source that is not what was accepted.
func Changed(err error) error {
	return engine.Coded(codeSourceChanged, "%w: a sandbox starts with nothing else than what was accepted: see who changed that, and fork the sandbox "+
		"for one with its files and the mounts as they are now, or delete it", err)
}
