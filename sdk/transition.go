package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// transition is a change of a sandbox's state that was accepted: the event that ends it well, and those on its way. Whatever
// else changes the state in between means that it does not come any more.
type transition struct {
	done EventType
	way  []EventType
	to   State
}

var (
	toReady    = transition{done: EventSandboxReady, to: StateReady}
	toStopped  = transition{done: EventSandboxStopped, way: []EventType{EventSandboxStopRequested}, to: StateStopped}
	toPaused   = transition{done: EventSandboxPaused, to: StatePaused}
	toUnpaused = transition{done: EventSandboxUnpaused, to: StateReady}
	toDeleted  = transition{done: EventSandboxDeleted, to: StateDeleted}
)

// turns are the events that begin or end a transition.
var turns = []EventType{
	EventSandboxAccepted, EventSandboxReady, EventSandboxStopRequested, EventSandboxStopped, EventSandboxPauseRequested,
	EventSandboxPaused, EventSandboxUnpauseRequested, EventSandboxUnpaused, EventSandboxDrainRequested, EventSandboxRestarting,
}

// watch is told of each event after the acceptance in turn, and says when the transition has ended well or fails.
func (t transition) watch(e Event) (bool, error) {
	switch {
	case e.Type == t.done:
		return true, nil
	case e.Type == EventSandboxFailed, e.Type == EventSandboxDormant && t.to != StateDeleted:
		return false, &SandboxFailedError{ID: e.SandboxID, Code: e.ErrorCode, Message: e.ErrorMessage}
	case t.to == StateDeleted:
		return false, nil
	case e.Type == EventSandboxDeleteRequested, e.Type == EventSandboxDeleted:
		return false, &SandboxDeletedError{ID: e.SandboxID, Reason: e.Reason}
	case slices.Contains(turns, e.Type) && !slices.Contains(t.way, e.Type):
		return false, &TransitionError{ID: e.SandboxID, To: t.to, State: e.State, Code: e.ErrorCode, Message: e.ErrorMessage}
	}
	return false, nil
}

// judge says whether a sandbox in which nothing is in progress has come through the transition.
func (t transition) judge(box Sandbox) error {
	switch {
	case box.State == t.to:
		return nil
	case box.State == StateFailed, box.State == StateDormant:
		return &SandboxFailedError{ID: box.ID, Code: box.ErrorCode, Message: box.ErrorMessage}
	case box.State == StateDeleting, box.State == StateDeleted:
		return &SandboxDeletedError{ID: box.ID}
	}
	return &TransitionError{ID: box.ID, To: t.to, State: box.State}
}

// TransitionError: a change of state that was accepted did not come about, and the sandbox goes on in another state:
// the engine refused it, or something else was asked of the sandbox meanwhile.
type TransitionError struct {
	ID    string
	To    State // what was asked for
	State State // what it is in instead
	// Code and Message tell what went wrong, such as SANDBOX_PAUSE_FAILED; both are empty where another change came instead.
	Code    string
	Message string
}

func (e *TransitionError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("sandbox %s did not become %s: something else was asked of it meanwhile, and it is %s", e.ID, e.To, e.State)
	}
	return fmt.Sprintf("sandbox %s did not become %s and is %s (%s): %s", e.ID, e.To, e.State, e.Code, e.Message)
}

// through waits for a transition by the events after a sequence. Where the daemon has removed some of them before they
// were read, the sandbox's state tells.
func (c *Client) through(ctx context.Context, id string, from uint64, w waiting, t transition, watch func(Event) (bool, error)) (Sandbox, error) {
	err := c.await(ctx, id, from, w, watch)
	if !errors.Is(err, ErrSandboxEventSequenceExpired) {
		return Sandbox{}, err
	}
	box, err := c.atRest(ctx, id)
	if err != nil {
		return box, err
	}
	return box, t.judge(box)
}

// atRest returns the sandbox once nothing is in progress in it. One that drains waits for its commands.
func (c *Client) atRest(ctx context.Context, id string) (Sandbox, error) {
	var elsewhere []State
	for _, value := range agboxv1.SandboxState_value {
		if state := agboxv1.SandboxState(value); value != 0 && state != agboxv1.SandboxState_SANDBOX_STATE_DRAINING {
			elsewhere = append(elsewhere, stateOf(state))
		}
	}
	for {
		box, _, err := c.WaitSandbox(ctx, id, 0)
		if err != nil || box.State != StateDraining {
			return box, err
		}
		if _, _, err := c.WaitSandbox(ctx, id, 0, elsewhere...); err != nil {
			return box, err
		}
	}
}

// change waits for a transition that was asked for, by what is told after its acceptance: another client's, of before, is
// none of ours.
func (c *Client) change(ctx context.Context, id string, t transition, w waiting, accepted *agboxv1.AcceptedResponse, err error) error {
	if err != nil || !w.wait {
		return err
	}
	_, err = c.through(ctx, id, accepted.GetEventSequence(), w, t, t.watch)
	return err
}

// awaitDeleted waits from a baseline that is younger than the accepted deletion: older failures do not count, and DELETED
// is final.
func (c *Client) awaitDeleted(ctx context.Context, id string, w waiting) error {
	if !w.wait {
		return nil
	}
	var box Sandbox
	err := c.raw.Await(ctx, func() (err error) {
		box, err = c.GetSandbox(ctx, id)
		return err
	})
	switch {
	case err == nil && box.State == StateFailed:
		return &SandboxFailedError{ID: id, Code: box.ErrorCode, Message: box.ErrorMessage}
	case err == nil && box.State != StateDeleted:
		_, err = c.through(ctx, id, box.LastEventSequence, w, toDeleted, toDeleted.watch)
	}
	if errors.Is(err, ErrSandboxNotFound) {
		return nil // its history is gone too
	}
	return err
}
