package spec

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/agbox-dev/agbox/hostpath"
)

// mountSource checks what is to be mounted, a path without symbolic links, and takes down what it is.
func (r *resolver) mountSource(field string, m Mount) error {
	if err := r.guard.Mount(m.Source); err != nil {
		return refusedPlace(field, err)
	}
	mounts, err := hostpath.Mounts("self")
	if err != nil {
		return refuse(ReasonSourceUnreadable, field, "%s cannot be looked at: the daemon's table of mounts cannot be read: %v; mount /proc", quote(m.Source), err)
	}
	below := hostpath.Below(mounts, m.Source)
	switch at := slices.IndexFunc(below, func(b hostpath.Mount) bool { return !b.ReadOnly }); {
	case m.CopyOnWrite:
		if err := layered(field, m.Source, below); err != nil {
			return err
		}
	case at >= 0 && !m.Writable && !r.host.ReadOnlyBelow:
		return refuse(ReasonSourceSubmounts, field, "%s cannot be mounted read-only: %s is mounted in it, and this engine would leave that writable; "+
			"name a directory without it, make the mount writable, or use Docker 25 on Linux 5.12 or newer", quote(m.Source), quote(below[at].Point))
	}
	return r.identify(field, m.Source)
}

// copySource checks the source of a copy, or what the source of a mount has to be as well, and returns it cleaned. A copy may
// leave out what is protected within its source.
func (r *resolver) copySource(field, source string) (string, error) {
	if strings.ContainsRune(source, 0) || !filepath.IsAbs(source) {
		return "", refuse(ReasonSourceNotAbsolute, field, "%s is not an absolute path; write the path on the daemon's host from / on", quote(source))
	}
	clean := filepath.Clean(source)
	info, err := os.Lstat(clean)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "", refuse(ReasonSourceNotFound, field, "%s does not exist on the daemon's host; create it first or correct the path", quote(source))
	case err != nil:
		return "", refuse(ReasonSourceUnreadable, field, "%s cannot be looked at by the daemon: %v; give it access or choose another path", quote(source), cause(err))
	}
	real, err := filepath.EvalSymlinks(clean)
	switch {
	case err != nil && info.Mode().Type() == fs.ModeSymlink:
		return "", refuse(ReasonSourceSymlink, field, "%s is a symbolic link that leads nowhere; name an existing file or directory", quote(source))
	case err != nil:
		return "", refuse(ReasonSourceUnreadable, field, "%s cannot be resolved by the daemon: %v; give it access or choose another path", quote(source), cause(err))
	}
	if err := r.guard.Copy(real); err != nil {
		return "", refusedPlace(field, err)
	}
	if real != clean {
		return "", refuse(ReasonSourceSymlink, field, "%s is or goes through a symbolic link; if that is meant, write where it leads: %s", quote(source), quote(real))
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return "", refuse(ReasonSourceKind, field, "%s is %s; name a file or a directory", quote(source), kind(info.Mode()))
	}
	return clean, nil
}

// identify takes down what a source is.
func (r *resolver) identify(field, source string) error {
	file, err := hostpath.Open(source)
	if errors.Is(err, hostpath.ErrLink) {
		return refuse(ReasonSourceSymlink, field, "%s is or goes through a symbolic link, which was made just now; write where it leads", quote(source))
	}
	if err == nil {
		defer file.Close()
		r.out.Sources[source], err = hostpath.Identify(file)
	}
	if err != nil {
		return refuse(ReasonSourceUnreadable, field, "%s cannot be looked at by the daemon: %v; give it access or choose another path", quote(source), cause(err))
	}
	return nil
}

// refusedPlace is the refusal of the source at field that a guard's error means.
func refusedPlace(field string, err error) error {
	place, ok := errors.AsType[*hostpath.Protected](err)
	if !ok {
		return err
	}
	return refuse(ReasonSourceProtected, field, "%s %s %s (%s), which no sandbox may have; choose a directory apart from it, such as a sub-directory with just the project",
		quote(place.Path), place.Relation, place.What, place.Where)
}

func kind(mode fs.FileMode) string {
	switch mode.Type() {
	case fs.ModeSocket:
		return "a socket"
	case fs.ModeNamedPipe:
		return "a named pipe"
	case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
		return "a device"
	case fs.ModeSymlink:
		return "a symbolic link"
	}
	return "something else"
}

// cause is err without the operation and path that the message names already.
func cause(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}
