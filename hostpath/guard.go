package hostpath

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Guard knows the places that no sandbox may have, as they were found when it was made. Use Places.Guard.
type Guard struct {
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

func (g *Guard) add(what, path string) {
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

// Protected is what a Guard refuses. Its text is for a person.
type Protected struct {
	Path string
	// What Path is, lies in or contains, as Relation says, and where that is.
	Relation, What, Where string
}

func (p *Protected) Error() string {
	return fmt.Sprintf("%q %s %s (%s), which no sandbox may have", p.Path, p.Relation, p.What, p.Where)
}

// Mount returns a *Protected when path is a place, lies in one or contains one. path has no symbolic links. Places are
// compared as files too, so that a second name for one, by a bind mount or a hard link, does not help.
func (g *Guard) Mount(path string) error { return g.protect(path, true) }

// Copy is Mount for the top of a tree that may contain places; Entry is for what is in there.
func (g *Guard) Copy(path string) error { return g.protect(path, false) }

func (g *Guard) protect(path string, contents bool) error {
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
		return &Protected{path, relation, p.what, p.line[0].path}
	}
	return nil
}

// Entry returns a *Protected when path, which info describes, is a place itself.
func (g *Guard) Entry(path string, info fs.FileInfo) error {
	at := located{path, info}
	for _, p := range g.places {
		if p.line[0].same(at) {
			return &Protected{path, "is", p.what, p.line[0].path}
		}
	}
	return nil
}
