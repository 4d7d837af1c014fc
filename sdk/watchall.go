package sdk

import (
	"context"
	"io"
	"iter"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
)

// WatchOption changes what WatchSandboxes tells.
type WatchOption func(*agboxv1.WatchSandboxesRequest)

// WithLabels watches only the sandboxes that carry all of these labels.
func WithLabels(labels map[string]string) WatchOption {
	return func(r *agboxv1.WatchSandboxesRequest) { r.LabelSelector = labels }
}

// WithSnapshots has the current state of each sandbox, and its running execs, told first.
func WithSnapshots() WatchOption {
	return func(r *agboxv1.WatchSandboxesRequest) { r.IncludeCurrentSnapshot = true }
}

// WatchSandboxes yields the events of all sandboxes from now on, those that are created later included: each sandbox's
// in order, without gap or duplicate. It ends with one last error: the context's, ErrUnavailable when the daemon went
// away or never was there, ErrSandboxEventSequenceExpired when events were removed before a slow reader came to them.
// What happens until the next WatchSandboxes is not told; WithSnapshots tells what has become of it. Leaving the loop
// ends it as well.
func (c *Client) WatchSandboxes(ctx context.Context, opts ...WatchOption) iter.Seq2[Event, error] {
	req := &agboxv1.WatchSandboxesRequest{}
	for _, opt := range opts {
		opt(req)
	}
	return streamed(func() (*raw.Stream, error) { return c.raw.WatchSandboxes(ctx, req) }, io.EOF, eventOf)
}
