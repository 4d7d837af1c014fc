package sdk

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// WaitSandbox waits until the sandbox is in one of the states; with none given, until it has no operation in progress.
// It returns the sandbox as it is then and true; or false as soon as it gets there no more, as from FAILED to READY, or
// when the timeout, unless 0, is over. It goes on over a restart of the daemon, and fails when there is none to ask
// until the timeout or the context ends.
func (c *Client) WaitSandbox(ctx context.Context, id string, timeout time.Duration, states ...State) (Sandbox, bool, error) {
	req := &agboxv1.WaitSandboxRequest{SandboxId: id, States: protoStates(states)}
	limit := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var resp *agboxv1.WaitSandboxResponse
	err := c.raw.Await(limit, func() (err error) {
		if until, limited := limit.Deadline(); limited && timeout > 0 {
			req.Timeout = durationpb.New(max(0, time.Until(until)))
		}
		resp, err = c.raw.WaitSandbox(ctx, req)
		return err
	})
	if err != nil {
		return Sandbox{}, false, err
	}
	return sandboxOf(resp.GetSandbox()), resp.GetReached(), nil
}
