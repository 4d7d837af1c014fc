package sdk

import (
	"context"
	"errors"
	"io"
	"iter"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/apply"
)

// Kinds of changes.
const (
	ChangeAdded   = apply.Added
	ChangeChanged = apply.Changed
	ChangeRemoved = apply.Removed
)

// ChangedMount is a copy-on-write mount: what the sandbox has at Target began as Source on the daemon's host.
type ChangedMount = apply.Mount

// Change is one difference between what the host has and what the sandbox has in a copy-on-write mount.
type Change = apply.Change

// ChangesOption changes what Changes lists.
type ChangesOption func(*changesOptions)

type changesOptions struct {
	targets []string
	mount   func(ChangedMount)
}

// WithTargets lists the changes in the mounts with these targets only.
func WithTargets(targets ...string) ChangesOption {
	return func(o *changesOptions) { o.targets = append(o.targets, targets...) }
}

// WithMounts has a function called for each mount before its changes come, also for one without any.
func WithMounts(mount func(ChangedMount)) ChangesOption {
	return func(o *changesOptions) { o.mount = mount }
}

// Changes lists what a sandbox changed in its copy-on-write mounts, a directory before what is in it. It ends with one last
// error, if any. It needs no sandbox that runs; of one that does, it tells what was there when the daemon came by.
func (c *Client) Changes(ctx context.Context, id string, opts ...ChangesOption) iter.Seq2[Change, error] {
	options := changesOptions{mount: func(ChangedMount) {}}
	for _, opt := range opts {
		opt(&options)
	}
	return func(yield func(Change, error) bool) {
		stream, err := c.raw.SandboxChanges(ctx, &agboxv1.SandboxChangesRequest{SandboxId: id, Targets: options.targets})
		if err != nil {
			yield(Change{}, err)
			return
		}
		defer stream.Close()
		var mount *ChangedMount
		for {
			part, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				yield(Change{}, err)
				return
			}
			if m := part.GetMount(); m != nil {
				mount = &ChangedMount{Target: m.GetTarget(), Source: m.GetSource(), ListedAt: timeOf(m.GetListedAt())}
				options.mount(*mount)
			}
			for _, p := range part.GetChanges() {
				if !yield(changeOf(mount, p), nil) {
					return
				}
			}
		}
	}
}

func changeOf(mount *ChangedMount, p *agboxv1.Change) Change {
	return Change{
		Mount: mount, Path: bytesOr(p.GetPathBytes(), p.GetPath()), Kind: p.GetKind(), Type: p.GetType(), OldType: p.GetOldType(),
		Size: p.GetSizeBytes(), Mode: fileMode(p.GetMode()), ModifiedAt: timeOf(p.GetModifiedAt()),
		LinkTarget: bytesOr(p.GetLinkTargetBytes(), p.GetLinkTarget()), Conflict: p.GetConflict(), Problem: p.GetProblem(),
	}
}

func bytesOr(raw []byte, text string) string {
	if len(raw) > 0 {
		return string(raw)
	}
	return text
}

// ChangesTar returns what a sandbox added and changed in one copy-on-write mount as a tar stream, with names as in
// Change.Path. A file that the sandbox writes to meanwhile ends it with an error. What the daemon refuses, the first Read
// tells. Close must follow.
func (c *Client) ChangesTar(ctx context.Context, id, target string) (io.ReadCloser, error) {
	return c.raw.DownloadChanges(ctx, &agboxv1.DownloadChangesRequest{SandboxId: id, Target: target})
}
