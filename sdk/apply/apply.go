package apply

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ErrUnsupported: changes can be applied on Linux only, where the daemon's host is this one.
var ErrUnsupported = errors.New("sdk: changes are applied on Linux only")

// Options say what is applied beside what can do no harm.
type Options struct {
	// Overwrite applies also what the host has changed since the sandbox was made.
	Overwrite bool
	// OutsideLinks applies also symbolic links that lead out of the mount.
	OutsideLinks bool
}

// Changes applies changes of one mount, whose tar stream open returns, and returns what it left; see sdk.Client.ApplyChanges.
func Changes(changes []Change, options Options, open func(target string) (io.ReadCloser, error)) ([]Left, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	mount := changes[0].Mount
	for _, change := range changes {
		if change.Mount == nil || *change.Mount != *mount {
			return nil, errors.New("sdk: changes of several mounts cannot be applied at once")
		}
	}
	to, err := openSource(mount)
	if err != nil {
		return nil, err
	}
	defer to.close()
	a := &applying{options: options, to: to, wanted: map[string]*Change{}}
	a.choose(changes)
	if len(a.wanted) == 0 {
		return a.left, nil
	}
	stream, err := open(mount.Target)
	if err != nil {
		return a.left, err
	}
	defer stream.Close()
	err = a.unpack(tar.NewReader(stream))
	if err == nil {
		a.remove(changes)
		to.finish(func(c *Change, err error) {
			a.leave(c, "its permissions were not set: %s", cmp.Or(leftBy(err), err.Error()))
		})
	}
	slices.SortFunc(a.left, func(x, y Left) int { return strings.Compare(x.Change.Path, y.Change.Path) })
	return a.left, err
}

// applying is one Changes.
type applying struct {
	options Options
	to      *hostTree
	// wanted are the changes that are still to be made, by path.
	wanted map[string]*Change
	left   []Left
}

func (a *applying) leave(c *Change, format string, args ...any) {
	reason := strings.ToValidUTF8(fmt.Sprintf(format, args...), "\uFFFD")
	a.left = append(a.left, Left{*c, reason})
	delete(a.wanted, c.Path)
}

// choose decides what is wanted of what was listed.
func (a *applying) choose(changes []Change) {
	for i := range changes {
		c := &changes[i]
		switch {
		case !filepath.IsLocal(c.Path):
			a.leave(c, "its path leads out of the mount")
		case c.Problem != "" && c.Kind != Removed:
			a.leave(c, "%s", c.Problem)
		case c.Conflict && !a.options.Overwrite:
			a.leave(c, "the host changed it since the sandbox was made")
		case c.Type == Symlink && c.Kind != Removed && !a.options.OutsideLinks && leadsOut(c.Path, c.LinkTarget):
			a.leave(c, "the link leads out of the mount, to %q", c.LinkTarget)
		default:
			a.wanted[c.Path] = c
		}
	}
}

// leadsOut reports whether a link at p may lead out of the tree that p is in, whose other links do not.
func leadsOut(p, target string) bool {
	if path.IsAbs(target) {
		return true
	}
	depth, below := strings.Count(p, "/"), false
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case part == "" || part == ".":
		case part != "..":
			below = true
		case below: // behind another link it is anywhere
			return true
		default:
			depth--
		}
	}
	return depth < 0
}

func (a *applying) unpack(in *tar.Reader) error {
	for {
		header, err := in.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		c, wanted := a.wanted[strings.TrimSuffix(header.Name, "/")]
		if !wanted || c.Kind == Removed {
			continue // it came after the list, or was left
		}
		if kind := tarKind(header.Typeflag); kind != c.Type || kind == Symlink && header.Linkname != c.LinkTarget {
			a.leave(c, "the sandbox has made something else of it since it was listed")
			continue
		}
		reason, err := a.to.write(c, header, in, a.options)
		if reason == "" && err != nil {
			reason = leftBy(err)
		}
		if reason == "" && err != nil {
			return fmt.Errorf("%q: %w", c.Path, err)
		}
		if reason != "" {
			a.leave(c, "%s", reason)
		}
		delete(a.wanted, c.Path)
	}
	for _, c := range a.wanted {
		if c.Kind != Removed {
			a.leave(c, "the sandbox has it no longer")
		}
	}
	return nil
}

func tarKind(flag byte) string {
	switch flag {
	case tar.TypeReg, tar.TypeLink:
		return Regular
	case tar.TypeDir:
		return Directory
	case tar.TypeSymlink:
		return Symlink
	}
	return Other
}

func (a *applying) remove(changes []Change) {
	for i := range changes {
		c := &changes[i]
		if a.wanted[c.Path] != c {
			continue
		}
		if reason := a.to.remove(c, a.options); reason != "" {
			a.leave(c, "%s", reason)
		}
	}
}
