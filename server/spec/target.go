package spec

import (
	"path"
	"slices"
	"strings"

	"github.com/agbox-dev/agbox/paths"
)

// targets holds the field that uses each clean container path.
type targets map[string]string

// claim cleans the container path target and takes it for field.
func (t targets) claim(field, target string) (string, error) {
	clean, refused := containerPath(field, target)
	if refused != nil {
		return "", refused
	}
	if clean == "/" {
		return "", refuse(ReasonTargetReserved, field, "/ is the sandbox's root; choose a directory below it, for example /workspace")
	}
	if other, ok := t[clean]; ok {
		return "", refuse(ReasonTargetRepeated, field, "%s is used by %s already; give each its own", quote(clean), other)
	}
	t[clean] = field
	return clean, nil
}

// containerPath cleans a path in the sandbox; / is one.
func containerPath(field, p string) (string, *Error) {
	if strings.ContainsRune(p, 0) {
		return "", refuse(ReasonTargetNotAbsolute, field, "%s contains a NUL byte; remove it", quote(p))
	}
	if !path.IsAbs(p) {
		return "", refuse(ReasonTargetNotAbsolute, field, "%s is not absolute; write the path in the sandbox from / on", quote(p))
	}
	if slices.Contains(strings.Split(p, "/"), "..") {
		return "", refuse(ReasonTargetTraversal, field, "%s contains \"..\"; write the path that is meant", quote(p))
	}
	clean := path.Clean(p)
	if reserved := paths.Reserved(clean); reserved != "" {
		return "", refuse(ReasonTargetReserved, field, "%s lies in %s, which the sandbox needs for itself; choose another path", quote(p), reserved)
	}
	return clean, nil
}
