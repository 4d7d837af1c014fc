package sdk

import (
	"context"
	"io"

	"github.com/agbox-dev/agbox/sdk/apply"
)

// ErrApplyUnsupported: changes can be applied on Linux only, where the daemon's host is this one.
var ErrApplyUnsupported = apply.ErrUnsupported

// LeftChange is a change that was not applied.
type LeftChange = apply.Left

// ApplyOption changes how changes are applied.
type ApplyOption func(*apply.Options)

// WithOverwrite applies also what the host has changed since the sandbox was made. The host's version is lost.
func WithOverwrite() ApplyOption { return func(o *apply.Options) { o.Overwrite = true } }

// WithOutsideLinks applies also symbolic links that lead out of the mount, as absolute ones do.
func WithOutsideLinks() ApplyOption { return func(o *apply.Options) { o.OutsideLinks = true } }

// ApplyChanges brings the host's files to what the sandbox has: changes are those of one mount, as Changes listed them, and no
// other is made. It runs on the daemon's host. Nothing is written outside of the mount's source, whatever links and names the
// sandbox has or makes meanwhile, and nothing is followed there. A file is replaced as a whole. Permissions and times are
// taken, setuid, setgid and owners are not.
//
// It returns what it left, with the reason: what the host changed since the sandbox was made, or since the list; what has a
// problem; what is no longer as listed; links that lead out. An error ends it where it stands; to begin again, list again.
func (c *Client) ApplyChanges(ctx context.Context, id string, changes []Change, opts ...ApplyOption) ([]LeftChange, error) {
	var options apply.Options
	for _, opt := range opts {
		opt(&options)
	}
	return apply.Changes(changes, options, func(target string) (io.ReadCloser, error) { return c.ChangesTar(ctx, id, target) })
}
