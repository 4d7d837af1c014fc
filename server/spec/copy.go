package spec

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// maxCopyEntries bounds the walk over one copy's source.
const maxCopyEntries = 1_000_000

// CopyEntry is one file, directory or symbolic link of a copy.
type CopyEntry struct {
	// Path is relative to the source, with slashes; "." is the source itself.
	Path string
	Info fs.FileInfo
	// Link is what a symbolic link says in the copy. A link that is absolute on the host, to a place
	// within the source, is relative here.
	Link string
}

// WalkCopy calls visit for each entry that a copy of source takes with it, parents first, in lexical order;
// what patterns exclude is not entered. source is clean, absolute and without symbolic links. It ends with an
// *Error at the first link that leads out of source and the first entry that can not be copied, and with the
// error of visit. Symbolic links are never followed.
func WalkCopy(source string, patterns *Excluder, visit func(CopyEntry) error) error {
	return walkCopy(source, patterns, maxCopyEntries, visit)
}

func walkCopy(source string, patterns *Excluder, limit int, visit func(CopyEntry) error) error {
	seen := 0
	return filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(source, path)
		if err = errors.Join(err, relErr); err != nil {
			return refuse(ReasonSourceUnreadable, "", "%s cannot be read by the daemon: %v; give it access or exclude it", shown(path), cause(err))
		}
		rel = filepath.ToSlash(rel)
		if rel != "." && patterns.Excluded(rel, d.IsDir()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if seen++; seen > limit {
			return refuse(ReasonCopyTooLarge, "", "%s holds more than %d entries; exclude what is not needed, or mount it", shown(source), limit)
		}
		info, err := d.Info()
		if err != nil {
			return refuse(ReasonSourceUnreadable, "", "%s cannot be read by the daemon: %v; try again when nothing changes it", shown(path), cause(err))
		}
		entry := CopyEntry{Path: rel, Info: info}
		switch info.Mode().Type() {
		case 0, fs.ModeDir:
		case fs.ModeSymlink:
			if entry.Link, err = copiedLink(source, path); err != nil {
				return err
			}
		default:
			return refuse(ReasonCopyEntryKind, "", "%s is %s and cannot be copied; exclude it", shown(path), kind(info.Mode()))
		}
		return visit(entry)
	})
}

// copiedLink returns what the link at path says in a copy of source, or refuses it because it leads out.
func copiedLink(source, path string) (string, error) {
	link, err := os.Readlink(path)
	if err != nil {
		return "", refuse(ReasonSourceUnreadable, "", "%s cannot be read by the daemon: %v; try again when nothing changes it", shown(path), cause(err))
	}
	end := link
	if !filepath.IsAbs(link) {
		end = filepath.Join(filepath.Dir(path), link)
	}
	end = filepath.Clean(end)
	// The words of the link decide for one that leads nowhere, the file system for all others.
	if real, err := filepath.EvalSymlinks(path); !within(end, source) || err == nil && !within(real, source) {
		return "", refuse(ReasonCopyLinkEscapes, "", "the symbolic link %s leads out of %s, to %s; exclude it, or replace it by what it leads to",
			shown(path), shown(source), shown(link))
	}
	if !filepath.IsAbs(link) {
		return link, nil
	}
	rel, err := filepath.Rel(filepath.Dir(path), end)
	if err != nil {
		return "", refuse(ReasonCopyLinkEscapes, "", "the symbolic link %s leads to %s, which has no place in the copy; exclude it", shown(path), shown(link))
	}
	return filepath.ToSlash(rel), nil
}

func (r *resolver) copies() error {
	for i, c := range r.out.Spec.Copies {
		field := element("create_spec.copies", i)
		source, err := r.guard.copySource(field+".source", c.GetSource())
		if err != nil {
			return err
		}
		target, err := r.targets.claim(field+".target", c.GetTarget())
		if err != nil {
			return err
		}
		for _, m := range r.out.Mounts {
			if !m.Writable && within(target, m.Target) {
				return refuse(ReasonCopyTargetReadOnly, field+".target", "%s lies in the read-only mount %s; make the mount writable or copy elsewhere", shown(target), shown(m.Target))
			}
		}
		patterns, err := NewExcluder(c.ExcludePatterns)
		if err != nil {
			return under(field+".exclude_patterns", err)
		}
		err = WalkCopy(source, patterns, func(e CopyEntry) error {
			return r.guard.enter(filepath.Join(source, filepath.FromSlash(e.Path)), e.Info)
		})
		if err != nil {
			return under(field+".source", err)
		}
		c.Source, c.Target = source, target
	}
	return nil
}

// under puts field before the one that err names.
func under(field string, err error) error {
	var refused *Error
	if errors.As(err, &refused) {
		refused.Field = field + refused.Field
	}
	return err
}
