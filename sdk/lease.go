package sdk

import (
	"context"
	"errors"
	"io"
	"sync"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Hold is a sandbox's lease that this program holds, over restarts of the daemon too: there the sandbox's grace runs
// from the daemon's start on.
type Hold struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // final once done is closed
}

// Hold holds the lease of a sandbox that was created with one; the sandbox ends a grace after its last holder is gone,
// be that by Close, by the context's end, or because the program died. It returns once the lease is held. ErrNoLease:
// the sandbox has none, was detached, or is being deleted. Close must follow.
func (c *Client) Hold(ctx context.Context, id string) (*Hold, error) {
	ctx, cancel := context.WithCancel(ctx)
	h, held := &Hold{cancel: cancel, done: make(chan struct{})}, make(chan struct{})
	go func() {
		defer close(h.done)
		defer cancel()
		tell := sync.OnceFunc(func() { close(held) })
		h.err = c.raw.Resume(ctx, func(met func()) error {
			stream, err := c.raw.HoldSandbox(ctx, &agboxv1.HoldSandboxRequest{SandboxId: id})
			if err != nil {
				return err
			}
			defer stream.Close()
			if _, err := stream.Recv(); err != nil {
				return err
			}
			met()
			tell()
			if _, err = stream.Recv(); errors.Is(err, io.EOF) {
				return nil
			}
			return err
		})
		select {
		case <-held:
			if ctx.Err() != nil {
				h.err = nil
			}
		default:
		}
	}()
	select {
	case <-held:
	case <-h.done:
		if h.err != nil {
			return nil, h.err
		}
	}
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

// Wait returns when the lease is held no more: nil after Close or the context's end, or when the sandbox was detached or is
// gone; else what the daemon refused.
func (h *Hold) Wait() error {
	<-h.done
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
