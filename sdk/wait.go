package sdk

import (
	"context"
	"errors"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// await reads the events after a sequence until done says so or fails.
func (c *Client) await(ctx context.Context, id string, from uint64, w waiting, done func(Event) (bool, error)) error {
	req := &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: from}
	for p, err := range c.raw.Follow(ctx, req, c.broken) {
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

// until is done at the target; a failure or a deletion on the way is an error.
func until(target EventType) func(Event) (bool, error) {
	return func(e Event) (bool, error) {
		switch {
		case e.Type == target:
			return true, nil
		case e.Type == EventSandboxFailed, e.Type == EventSandboxDormant && target != EventSandboxDeleted:
			return false, &SandboxFailedError{ID: e.SandboxID, Code: e.ErrorCode, Message: e.ErrorMessage}
		case target != EventSandboxDeleted && (e.Type == EventSandboxDeleteRequested || e.Type == EventSandboxDeleted):
			return false, &SandboxDeletedError{ID: e.SandboxID, Reason: e.Reason}
		}
		return false, nil
	}
}

// change asks for a transition and waits for its target from a baseline that is older than the
// request, so the target cannot be missed.
func (c *Client) change(ctx context.Context, id string, target EventType, w waiting, ask func() error) error {
	if !w.wait {
		return ask()
	}
	before, err := c.GetSandbox(ctx, id)
	if err != nil {
		return err
	}
	if err := ask(); err != nil {
		return err
	}
	return c.await(ctx, id, before.LastEventSequence, w, until(target))
}

// awaitDeleted waits from a baseline that is younger than the accepted deletion: older failures
// do not count, and DELETED is final.
func (c *Client) awaitDeleted(ctx context.Context, id string, w waiting) error {
	if !w.wait {
		return nil
	}
	var box Sandbox
	err := c.patient(ctx, func() (err error) {
		box, err = c.GetSandbox(ctx, id)
		return err
	})
	switch {
	case err == nil && box.State == StateFailed:
		return &SandboxFailedError{ID: id, Code: box.ErrorCode, Message: box.ErrorMessage}
	case err == nil && box.State != StateDeleted:
		err = c.await(ctx, id, box.LastEventSequence, w, until(EventSandboxDeleted))
	}
	if errors.Is(err, ErrSandboxNotFound) {
		return nil // its history is gone too
	}
	return err
}

// patient repeats a read until there is a daemon to answer it: the work that it asks about was
// accepted before, and goes on.
func (c *Client) patient(ctx context.Context, read func() error) error {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := read()
		if !errors.Is(err, ErrUnavailable) {
			return err
		}
		if c.broken != nil {
			c.broken(err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// awaitExec waits for the end of an exec and returns it as it ended, however that was.
func (c *Client) awaitExec(ctx context.Context, id string, w waiting) (Exec, error) {
	var exec Exec
	err := c.patient(ctx, func() (err error) {
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
	return exec, err
}
