package files

import (
	"path"
	"slices"
	"strings"
)

// maxPath is the kernel's PATH_MAX without the byte at its end.
const maxPath = 4095

// Clean returns the absolute path that p means, from directory on when it is relative. It is resolved by its words alone:
// ".." takes back the part before it, and nothing leads above "/".
func Clean(directory, p string) (string, error) {
	switch {
	case p == "":
		return "", Refuse(ErrPath, "no path is given; name one in the sandbox")
	case strings.ContainsRune(p, 0):
		return "", Refuse(ErrPath, "%q contains a NUL byte; remove it", p)
	case len(p) > maxPath:
		return "", Refuse(ErrPath, "it has %d bytes and a path has %d at most; shorten it", len(p), maxPath)
	case path.IsAbs(p):
		return path.Clean(p), nil
	}
	return path.Join(directory, p), nil
}

// entryName returns the clean name that an entry of a tar stream has below the directory it is unpacked in; "." is that
// directory.
func entryName(name string) (string, error) {
	if path.IsAbs(name) {
		return "", Refuse(ErrEscapes, "the tar stream has %q, an absolute name; make the archive with relative names (tar -C DIRECTORY -c .)", name)
	}
	if slices.Contains(strings.Split(name, "/"), "..") {
		return "", Refuse(ErrEscapes, "the tar stream has %q, which contains \"..\"; make the archive without such names", name)
	}
	return path.Clean(name), nil
}

// reserved is where callers write and remove nothing: the sandbox's own files, and the kernel's.
var reserved = []string{"/.agbox", "/proc", "/sys", "/dev", "/var/log/agents-sandbox"}

// Reserved refuses a clean path that belongs to the sandbox itself or to the kernel.
func Reserved(p string) error {
	for _, dir := range reserved {
		if Within(p, dir) {
			return Refuse(ErrReserved, "%q lies in %s, which the sandbox needs for itself; choose another path", p, dir)
		}
	}
	return nil
}

// Within reports whether the clean path p is dir or lies in it.
func Within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
