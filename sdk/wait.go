package sdk

import (
	"context"
	"errors"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// await reads the events after a sequence until done says so or fails.
func (c *Client) await(ctx context.Context, id string, from uint64, w waiting, done func(Event) (bool, error)) error {
	req := &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: from}
	for p, err := range c.raw.Follow(ctx, req) {
		if err != nil {
			return err
		}
		event := eventOf(p)
		if w.progress != nil {
			w.progress(event)
		}
		if ok, err := done(event); ok || err != nil {
			return err
		}
	}
	return &SandboxDeletedError{ID: id}
}

// awaitExec waits for the end of an exec and returns it as it ended, however that was.
func (c *Client) awaitExec(ctx context.Context, id string, w waiting) (Exec, error) {
	var exec Exec
	err := c.raw.Await(ctx, func() (err error) {
		exec, err = c.GetExec(ctx, id)
		return err
	})
	if err != nil || exec.Ended() {
		return exec, err
	}
	err = c.await(ctx, exec.SandboxID, exec.LastEventSequence, w, func(e Event) (bool, error) {
		exec.LastEventSequence = e.Sequence
		if e.ExecID == id {
			exec.apply(e)
		}
		if e.Type == EventSandboxDeleted && !exec.Ended() {
			return false, &SandboxDeletedError{ID: e.SandboxID, Reason: e.Reason}
		}
		return exec.Ended(), nil
	})
	if errors.Is(err, ErrSandboxEventSequenceExpired) { // its end may be among the events that were removed
		err = c.raw.Await(ctx, func() error {
			resp, err := c.raw.WaitExec(ctx, &agboxv1.WaitExecRequest{ExecId: id})
			if err == nil {
				exec = execOf(resp.GetExec())
			}
			return err
		})
	}
	return exec, err
}
