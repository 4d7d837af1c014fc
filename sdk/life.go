package sdk

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Pause freezes every process of a READY sandbox and waits until it is PAUSED. *TransitionError: it could not be frozen, and goes on.
func (c *Client) Pause(ctx context.Context, id string, opts ...WaitOption) error {
	accepted, err := c.raw.PauseSandbox(ctx, &agboxv1.PauseSandboxRequest{SandboxId: id})
	return c.change(ctx, id, toPaused, waits(opts), accepted, err)
}

// Unpause lets a PAUSED sandbox go on and waits until it does. *TransitionError: it could not, and stays PAUSED.
func (c *Client) Unpause(ctx context.Context, id string, opts ...WaitOption) error {
	accepted, err := c.raw.UnpauseSandbox(ctx, &agboxv1.UnpauseSandboxRequest{SandboxId: id})
	return c.change(ctx, id, toUnpaused, waits(opts), accepted, err)
}

// Drain refuses further execs, lets those that run end, and waits until the sandbox is STOPPED. What still runs after the
// deadline is cancelled; 0 sets none.
func (c *Client) Drain(ctx context.Context, id string, deadline time.Duration, opts ...WaitOption) error {
	request := &agboxv1.DrainSandboxRequest{SandboxId: id}
	if deadline > 0 {
		request.Deadline = durationpb.New(deadline)
	}
	accepted, err := c.raw.DrainSandbox(ctx, request)
	return c.change(ctx, id, toStopped, waits(opts), accepted, err)
}

// Extension moves a sandbox's deadlines; what is nil stays. An extension counts as activity.
type Extension struct {
	MaxDuration *time.Duration // from now on; 0: for ever
	IdleTTL     *time.Duration // 0: never
}

// Extend returns the sandbox with its new deadlines.
func (c *Client) Extend(ctx context.Context, id string, e Extension) (Sandbox, error) {
	request := &agboxv1.ExtendSandboxRequest{SandboxId: id, Touch: true}
	if e.MaxDuration != nil {
		request.MaxDuration = durationpb.New(*e.MaxDuration)
	}
	if e.IdleTTL != nil {
		request.IdleTtl = durationpb.New(*e.IdleTTL)
	}
	resp, err := c.raw.ExtendSandbox(ctx, request)
	if err != nil {
		return Sandbox{}, err
	}
	return sandboxOf(resp.GetSandbox()), nil
}

// SignalExec sends a signal, by its name such as INT or its number, to a running exec's own process.
func (c *Client) SignalExec(ctx context.Context, execID, signal string) error {
	_, err := c.raw.SignalExec(ctx, &agboxv1.SignalExecRequest{ExecId: execID, Signal: signal})
	return err
}
