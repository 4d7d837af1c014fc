package sdk

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ErrApplyUnsupported: changes can be applied on Linux only, where the daemon's host is this one.
var ErrApplyUnsupported = errors.New("sdk: changes are applied on Linux only")

// LeftChange is a change that was not applied.
type LeftChange struct {
	Change Change
	Reason string
}

// ApplyOption changes how changes are applied.
type ApplyOption func(*applyOptions)

type applyOptions struct{ overwrite, outside bool }

// WithOverwrite applies also what the host has changed since the sandbox was made. The host's version is lost.
func WithOverwrite() ApplyOption { return func(o *applyOptions) { o.overwrite = true } }

// WithOutsideLinks applies also symbolic links that lead out of the mount, as absolute ones do.
func WithOutsideLinks() ApplyOption { return func(o *applyOptions) { o.outside = true } }

// ApplyChanges brings the host's files to what the sandbox has: changes are those of one mount, as Changes listed them, and no
// other is made. It runs on the daemon's host. Nothing is written outside of the mount's source, whatever links and names the
// sandbox has or makes meanwhile, and nothing is followed there. A file is replaced as a whole. Permissions and times are
// taken, setuid, setgid and owners are not.
//
// It returns what it left, with the reason: what the host changed since the sandbox was made, or since the list; what has a
// problem; what is no longer as listed; links that lead out. An error ends it where it stands; to begin again, list again.
func (c *Client) ApplyChanges(ctx context.Context, id string, changes []Change, opts ...ApplyOption) ([]LeftChange, error) {
	var options applyOptions
	for _, opt := range opts {
		opt(&options)
	}
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
	stream, err := c.ChangesTar(ctx, id, mount.Target)
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
	slices.SortFunc(a.left, func(x, y LeftChange) int { return strings.Compare(x.Change.Path, y.Change.Path) })
	return a.left, err
}

// applying is one ApplyChanges.
type applying struct {
	options applyOptions
	to      *hostTree
	// wanted are the changes that are still to be made, by path.
	wanted map[string]*Change
	left   []LeftChange
}

func (a *applying) leave(c *Change, format string, args ...any) {
	reason := strings.ToValidUTF8(fmt.Sprintf(format, args...), "\uFFFD")
	a.left = append(a.left, LeftChange{*c, reason})
	delete(a.wanted, c.Path)
}

// choose decides what is wanted of what was listed.
func (a *applying) choose(changes []Change) {
	for i := range changes {
		c := &changes[i]
		switch {
		case !filepath.IsLocal(c.Path):
			a.leave(c, "its path leads out of the mount")
		case c.Problem != "" && c.Kind != ChangeRemoved:
			a.leave(c, "%s", c.Problem)
		case c.Conflict && !a.options.overwrite:
			a.leave(c, "the host changed it since the sandbox was made")
		case c.Type == FileSymlink && c.Kind != ChangeRemoved && !a.options.outside && leadsOut(c.Path, c.LinkTarget):
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
		if !wanted || c.Kind == ChangeRemoved {
			continue // it came after the list, or was left
		}
		if kind := tarKind(header.Typeflag); kind != c.Type || kind == FileSymlink && header.Linkname != c.LinkTarget {
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
		if c.Kind != ChangeRemoved {
			a.leave(c, "the sandbox has it no longer")
		}
	}
	return nil
}

func tarKind(flag byte) string {
	switch flag {
	case tar.TypeReg, tar.TypeLink:
		return FileRegular
	case tar.TypeDir:
		return FileDirectory
	case tar.TypeSymlink:
		return FileSymlink
	}
	return FileOther
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
