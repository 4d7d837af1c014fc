package sdk

import (
	"context"
	"errors"
	"io"
	"sync"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
)

// Hold is a sandbox's lease that this program holds, over restarts of the daemon too: there the sandbox's grace runs
// from the daemon's start on.
type Hold struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	err    error
}

// Hold holds the lease of a sandbox that was created with one; the sandbox ends a grace after its last holder is gone,
// be that by Close, by the context's end, or because the program died. It returns once the lease is held. ErrNoLease:
// the sandbox has none, was detached, or is being deleted. Close must follow.
func (c *Client) Hold(ctx context.Context, id string) (*Hold, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.hold(ctx, id)
	if err != nil {
		cancel()
		return nil, err
	}
	h := &Hold{cancel: cancel}
	h.done.Go(func() {
		for {
			_, err := stream.Recv()
			stream.Close()
			if errors.Is(err, ErrUnavailable) {
				err = c.patient(ctx, func() (err error) {
					stream, err = c.hold(ctx, id)
					return err
				})
			}
			if err != nil {
				if !errors.Is(err, io.EOF) && ctx.Err() == nil {
					h.err = err
				}
				return
			}
		}
	})
	return h, nil
}

// CreateHeld is CreateSandbox for a sandbox that this program holds from its acceptance on, so that a create that takes
// longer than the lease's grace is not cut off. A spec without a lease gets the default one. The Hold is nil only where
// the sandbox was not accepted, or could not be held; otherwise Close must follow, also beside an error of the wait.
func (c *Client) CreateHeld(ctx context.Context, spec Spec, opts ...CreateOption) (Sandbox, *Hold, error) {
	if spec.Lease == nil {
		spec.Lease = &Lease{}
	}
	call, resp, err := c.create(ctx, spec, opts)
	if err != nil {
		return Sandbox{}, nil, err
	}
	hold, err := c.Hold(ctx, resp.GetSandbox().GetSandboxId())
	if err != nil {
		return sandboxOf(resp.GetSandbox()), nil, err
	}
	box, err := c.accepted(ctx, resp, call)
	return box, hold, err
}

func (c *Client) hold(ctx context.Context, id string) (*raw.Hold, error) {
	stream, err := c.raw.HoldSandbox(ctx, &agboxv1.HoldSandboxRequest{SandboxId: id})
	if err != nil {
		return nil, err
	}
	if _, err := stream.Recv(); err != nil {
		stream.Close()
		return nil, err
	}
	return stream, nil
}

// Wait returns when the lease is held no more: nil after Close, or when the sandbox was detached or is gone; else what
// the daemon refused.
func (h *Hold) Wait() error {
	h.done.Wait()
	return h.err
}

// Close lets the lease go and waits until nothing of it is left. It may be called more than once.
func (h *Hold) Close() error {
	h.cancel()
	return h.Wait()
}

// Detach makes a sandbox with a lease an ordinary one, which needs no holder.
func (c *Client) Detach(ctx context.Context, id string) error {
	_, err := c.raw.DetachSandbox(ctx, &agboxv1.DetachSandboxRequest{SandboxId: id})
	return err
}
