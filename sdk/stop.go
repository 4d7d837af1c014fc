package sdk

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// StopOption changes one Stop or StopSandboxes. A WaitOption is one as well.
type StopOption interface{ stop(*stopCall) }

type stopCall struct {
	waiting
	force bool
	grace *durationpb.Duration
}

func (o WaitOption) stop(c *stopCall) { o(&c.waiting) }

type stopOption func(*stopCall)

func (o stopOption) stop(c *stopCall) { o(c) }

// WithGrace leaves so much time between TERM and KILL, in place of the daemon's own.
func WithGrace(grace time.Duration) StopOption {
	return stopOption(func(c *stopCall) { c.grace = durationpb.New(grace) })
}

// WithForce leaves none, and takes the place of a stop that hangs.
func WithForce() StopOption {
	return stopOption(func(c *stopCall) { c.force = true })
}

func stopOf(opts []StopOption) stopCall {
	call := stopCall{waiting: waiting{wait: true}}
	for _, opt := range opts {
		opt.stop(&call)
	}
	return call
}

// Stop ends what runs in a READY sandbox and waits until it is STOPPED. Its files stay.
func (c *Client) Stop(ctx context.Context, id string, opts ...StopOption) error {
	call := stopOf(opts)
	accepted, err := c.raw.StopSandbox(ctx, &agboxv1.StopSandboxRequest{SandboxId: id, Force: call.force, Grace: call.grace})
	return c.change(ctx, id, toStopped, call.waiting, accepted, err)
}
