package files

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/agbox-dev/agbox/paths"
)

const (
	// maxDepth is how many directories deep a tree may be that goes into a sandbox.
	maxDepth = 512
	// maxName is the kernel's NAME_MAX.
	maxName = 255
	// MaxTree is how long a path of a sandbox may be in bytes for a directory there, and all that it holds, to be carried:
	// the kernel's PATH_MAX, less what an engine puts before it and the name of a file in it. Engines leave out what they
	// cannot name and do not say so.
	MaxTree = 3500
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

// FromHome returns the path that p means for a user: absolute, or from that user's home on, which is "." and which "~" at the beginning of p
// stands for.
func FromHome(p string) (string, error) {
	switch first, rest, _ := strings.Cut(p, "/"); {
	case first == "~":
		p = rest
	case strings.HasPrefix(first, "~"):
		return "", Refuse(ErrPath, "%q begins in another user's home; name the user, or the path from / on", p)
	}
	return Clean(".", cmp.Or(p, "."))
}

// entryName returns the clean name that an entry of a tar stream has below the directory it is unpacked in; "." is that
// directory.
func entryName(name string) (string, error) {
	if path.IsAbs(name) {
		return "", Refuse(ErrEscapes, "the tar stream has %q, an absolute name; make the archive with relative names (tar -C DIRECTORY -c .)", name)
	}
	if len(name) > 4*maxPath { // before anything is done for each of its parts
		return "", Refuse(ErrEntry, "the tar stream has a name of %d bytes, and %d can be unpacked; shorten it", len(name), MaxTree)
	}
	if slices.Contains(strings.Split(name, "/"), "..") {
		return "", Refuse(ErrEscapes, "the tar stream has %q, which contains \"..\"; make the archive without such names", name)
	}
	clean := path.Clean(name)
	parts := strings.Split(clean, "/")
	switch {
	case len(clean) > MaxTree:
		return "", Refuse(ErrEntry, "the tar stream has a name of %d bytes, and %d can be unpacked; send a part of it to a directory below", len(clean), MaxTree)
	case len(parts) > maxDepth:
		return "", Refuse(ErrEntry, "the tar stream has a name with %d directories in one another, and %d can be unpacked; send a part of it to a directory below", len(parts)-1, maxDepth-1)
	}
	for _, part := range parts {
		if len(part) > maxName {
			return "", Refuse(ErrEntry, "the tar stream has the name %.40q…, of %d bytes, and a file's has %d at most; shorten it", part, len(part), maxName)
		}
	}
	return clean, nil
}

// Reserved refuses a clean path that belongs to the sandbox itself or to the kernel.
func Reserved(p string) error {
	if dir := paths.Reserved(p); dir != "" {
		return Refuse(ErrReserved, "%q lies in %s, which the sandbox needs for itself; choose another path", p, dir)
	}
	return nil
}
