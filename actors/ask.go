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
	capture   *capture // with lifecycle.Snapshot
	// place is what create takes, "" for none.
	place string

	answer   chan answer // one slot
	answered atomic.Bool
}

// answer is what became of a request: the state that followed from it, and the sequence of the event that tells of its
// acceptance, or of the newest one where it left nothing to do.
type answer struct {
	state    lifecycle.State
	sequence uint64
	err      error
}

func newRequest(c lifecycle.Command) *request {
	return &request{command: c, answer: make(chan answer, 1)}
}

func (r *request) reply(a answer) {
	if r.answered.CompareAndSwap(false, true) {
		r.answer <- a
	}
}

// step is the request on its way into the log.
func (r *request) step() *step {
	st := &step{command: r.command, create: r.create, exec: r.exec, requestID: r.requestID, capture: r.capture, place: r.place}
	st.done = func(err error) {
		a := answer{st.after, st.after.GetSequence(), err}
		if err == nil && len(st.events) > 0 {
			a.sequence = st.events[0].Sequence
		}
		r.reply(a)
	}
	return st
}

// ask sends r to the sandbox and waits for its answer.
func (s *System) ask(ctx context.Context, e *entry, r *request) answer {
	s.actors.Root.Send(e.pid, r)
	select {
	case a := <-r.answer:
		return a
	case <-e.gone:
		return answer{err: fmt.Errorf("%w: %s", ErrNotFound, e.id)}
	case <-s.ended:
		return answer{err: fmt.Errorf("%w: %s", runtime.ErrOutcomeUnknown, e.id)}
	case <-ctx.Done():
		return answer{err: fmt.Errorf("%w: sandbox %s: %w", runtime.ErrOutcomeUnknown, e.id, context.Cause(ctx))}
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
				r.reply(answer{err: errCrashed})
			}
			panic(&crash{reason: reason, message: envelope.Message, stack: debug.Stack()})
		}()
		next(c, envelope)
	}
}
