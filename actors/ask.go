package actors

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// request asks a sandbox for something. It is answered exactly once.
type request struct {
	command lifecycle.Command
	create  *agboxv1.CreateSpec        // with lifecycle.Create
	exec    *agboxv1.CreateExecRequest // with lifecycle.StartExec
	// requestID marks create and exec as one that may be asked again.
	requestID string

	answer   chan answer // one slot
	answered atomic.Bool
}

type answer struct {
	state lifecycle.State
	err   error
}

func newRequest(c lifecycle.Command) *request {
	return &request{command: c, answer: make(chan answer, 1)}
}

func (r *request) reply(state lifecycle.State, err error) {
	if r.answered.CompareAndSwap(false, true) {
		r.answer <- answer{state, err}
	}
}

// ask sends r to the sandbox and waits for its answer.
func (s *System) ask(ctx context.Context, e *entry, r *request) (lifecycle.State, error) {
	s.actors.Root.Send(e.pid, r)
	select {
	case a := <-r.answer:
		return a.state, a.err
	case <-e.gone:
		return lifecycle.State{}, fmt.Errorf("%w: %s", ErrNotFound, e.id)
	case <-s.ended:
		return lifecycle.State{}, fmt.Errorf("%w: %s", runtime.ErrOutcomeUnknown, e.id)
	case <-ctx.Done():
		return lifecycle.State{}, fmt.Errorf("%w: sandbox %s: %w", runtime.ErrOutcomeUnknown, e.id, context.Cause(ctx))
	}
}

// errCrashed answers those whose request was in a sandbox's hands when it crashed.
var errCrashed = fmt.Errorf("%w: the sandbox's actor crashed and is restarted from its log", runtime.ErrOutcomeUnknown)

// crash is what a sandbox's panic becomes on its way to the supervisor.
type crash struct {
	reason  any
	message any
	stack   []byte
}

func (c *crash) Error() string { return fmt.Sprintf("panic in %T: %v", c.message, c.reason) }

// answerCrashes tells the asker of a message whose handling panics that the outcome is unknown: the actor
// system drops that message and would let it wait.
func answerCrashes(next actor.ReceiverFunc) actor.ReceiverFunc {
	return func(c actor.ReceiverContext, envelope *actor.MessageEnvelope) {
		defer func() {
			reason := recover()
			if reason == nil {
				return
			}
			if r, ok := envelope.Message.(*request); ok {
				r.reply(lifecycle.State{}, errCrashed)
			}
			panic(&crash{reason: reason, message: envelope.Message, stack: debug.Stack()})
		}()
		next(c, envelope)
	}
}
