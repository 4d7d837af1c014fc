package spec

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// What the kernel serves is not for a sandbox, and neither is a directory that contains it.
var kernelDirs = []string{"/proc", "/sys", "/dev"}

// Whoever reaches one of these controls every container of the host.
var engineSockets = []string{
	"/var/run/docker.sock", "/run/docker.sock",
	"/run/containerd/containerd.sock", "/run/podman/podman.sock",
}

// guard knows the places of this host that a sandbox must not get hold of.
type guard struct {
	places []place
}

// place is a protected file or directory.
type place struct {
	what string
	line []located
}

// located is a path without symbolic links, and what it is when it exists.
type located struct {
	path string
	info fs.FileInfo
}

func (l located) same(other located) bool {
	return l.path == other.path || l.info != nil && other.info != nil && os.SameFile(l.info, other.info)
}

// lineage lists path and the directories that contain it, up to the root.
func lineage(path string) []located {
	var line []located
	for {
		info, err := os.Lstat(path)
		if err != nil {
			info = nil
		}
		line = append(line, located{path, info})
		if path == filepath.Dir(path) {
			return line
		}
		path = filepath.Dir(path)
	}
}

func newGuard(host Host) *guard {
	g := &guard{}
	for _, dir := range kernelDirs {
		g.add("the kernel's file system", dir)
	}
	for _, socket := range engineSockets {
		g.add("the container engine's socket", socket)
	}
	for _, env := range []string{"DOCKER_HOST", "CONTAINER_HOST"} {
		if socket, ok := strings.CutPrefix(host.getenv(env), "unix://"); ok {
			g.add("the container engine's socket", socket)
		}
	}
	if dir := host.getenv("XDG_RUNTIME_DIR"); dir != "" {
		g.add("the container engine's socket", filepath.Join(dir, "docker.sock"))
	}
	for _, dir := range host.DataDirs {
		g.add("agboxd's own data", dir)
	}
	return g
}

func (g *guard) add(what, path string) {
	if filepath.IsAbs(path) {
		g.places = append(g.places, place{what: what, line: lineage(realPath(path))})
	}
}

// realPath resolves the symbolic links of path, of which only a beginning may exist.
func realPath(path string) string {
	path = filepath.Clean(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(realPath(dir), filepath.Base(path))
	}
	return path
}

// source checks the source of a mount and returns it cleaned.
func (g *guard) source(field, source string) (string, error) {
	clean, err := g.copySource(field, source)
	if err != nil {
		return "", err
	}
	return clean, g.protect(field, clean, true)
}

// copySource is source for a copy, which may leave out what is protected within its source.
func (g *guard) copySource(field, source string) (string, error) {
	if strings.ContainsRune(source, 0) || !filepath.IsAbs(source) {
		return "", refuse(ReasonSourceNotAbsolute, field, "%s is not an absolute path; write the path on the daemon's host from / on", shown(source))
	}
	clean := filepath.Clean(source)
	info, err := os.Lstat(clean)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "", refuse(ReasonSourceNotFound, field, "%s does not exist on the daemon's host; create it first or correct the path", shown(source))
	case err != nil:
		return "", refuse(ReasonSourceUnreadable, field, "%s cannot be looked at by the daemon: %v; give it access or choose another path", shown(source), cause(err))
	}
	real, err := filepath.EvalSymlinks(clean)
	switch {
	case err != nil && info.Mode().Type() == fs.ModeSymlink:
		return "", refuse(ReasonSourceSymlink, field, "%s is a symbolic link that leads nowhere; name an existing file or directory", shown(source))
	case err != nil:
		return "", refuse(ReasonSourceUnreadable, field, "%s cannot be resolved by the daemon: %v; give it access or choose another path", shown(source), cause(err))
	}
	if err := g.protect(field, real, false); err != nil {
		return "", err
	}
	if real != clean {
		return "", refuse(ReasonSourceSymlink, field, "%s is or goes through a symbolic link; if that is meant, write where it leads: %s", shown(source), shown(real))
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return "", refuse(ReasonSourceKind, field, "%s is %s; name a file or a directory", shown(source), kind(info.Mode()))
	}
	return clean, nil
}

// protect refuses a path that is a protected place or lies in one; with contents also one that contains a
// place. path has no symbolic links. Places are compared as files too, so that a second name for one, by a
// bind mount or a hard link, does not help.
func (g *guard) protect(field, path string, contents bool) error {
	line := lineage(path)
	for _, p := range g.places {
		relation := ""
		switch {
		case p.line[0].same(line[0]):
			relation = "is"
		case slices.ContainsFunc(line[1:], p.line[0].same):
			relation = "lies in"
		case contents && slices.ContainsFunc(p.line[1:], line[0].same):
			relation = "contains"
		default:
			continue
		}
		return refuse(ReasonSourceProtected, field, "%s %s %s (%s), which no sandbox may have; choose a directory apart from it, such as a sub-directory with just the project",
			shown(path), relation, p.what, p.line[0].path)
	}
	return nil
}

// enter refuses a protected place that the walk over a copy's source has come to.
func (g *guard) enter(path string, info fs.FileInfo) error {
	at := located{path, info}
	for _, p := range g.places {
		if p.line[0].same(at) {
			return refuse(ReasonSourceProtected, "", "%s is %s, which no sandbox may have; exclude it", shown(path), p.what)
		}
	}
	return nil
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
