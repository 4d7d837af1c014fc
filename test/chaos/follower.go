package chaos

import (
	"context"
	"errors"
	"io"
	"maps"
	"sync"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/chaos/checker"
)

// follower is a client that follows one sandbox's events over every restart of the daemon, from the last sequence
// that it was told, and keeps what it was told for the checker.
type follower struct {
	world *world
	id    string
	done  chan struct{}
	// ends: nobody holds its lease, so it is deleted by itself.
	ends bool

	mu      sync.Mutex
	changed chan struct{}
	view    view
}

// view is what a client knows of a sandbox.
type view struct {
	last    uint64
	state   agboxv1.SandboxState
	busy    bool // an operation is under way
	running map[string]bool
	ended   map[string]bool
}

// follow begins to follow a sandbox whose creation was accepted, until it is DELETED or ctx ends.
func (w *world) follow(ctx context.Context, id string) *follower {
	f := &follower{world: w, id: id, done: make(chan struct{}), changed: make(chan struct{})}
	f.view.running, f.view.ended = map[string]bool{}, map[string]bool{}
	w.work.Go(func() {
		defer close(f.done)
		for ctx.Err() == nil && f.current().state != agboxv1.SandboxState_SANDBOX_STATE_DELETED {
			err := f.subscribe(ctx, f.current().last)
			if _, refused := errors.AsType[*raw.Error](err); refused && !transient(err) && ctx.Err() == nil {
				w.Checker.Report().Add(checker.BadAnswer, id, "a subscription ended with "+err.Error())
				return
			}
			w.rest(ctx)
		}
	})
	return f
}

// subscribe passes on what one stream brings.
func (f *follower) subscribe(ctx context.Context, from uint64) error {
	stream, err := f.world.client.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: f.id, FromSequence: from})
	if err != nil {
		return err
	}
	defer stream.Close()
	told := f.world.record.Stream(f.id, from)
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		told.Add(event)
		if f.apply(event); event.EventType == agboxv1.EventType_SANDBOX_DELETED {
			return nil
		}
	}
}

func (f *follower) apply(event *agboxv1.SandboxEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.view.last, f.view.state = event.Sequence, event.SandboxState
	switch event.EventType {
	case agboxv1.EventType_EXEC_STARTED:
		f.view.running[event.GetExec().GetExecId()] = true
	case agboxv1.EventType_EXEC_FINISHED, agboxv1.EventType_EXEC_FAILED, agboxv1.EventType_EXEC_CANCELLED:
		delete(f.view.running, event.GetExec().GetExecId())
		f.view.ended[event.GetExec().GetExecId()] = true
	case agboxv1.EventType_SANDBOX_ACCEPTED, agboxv1.EventType_SANDBOX_STOP_REQUESTED, agboxv1.EventType_SANDBOX_DELETE_REQUESTED,
		agboxv1.EventType_SANDBOX_PAUSE_REQUESTED, agboxv1.EventType_SANDBOX_UNPAUSE_REQUESTED, agboxv1.EventType_SANDBOX_DRAIN_REQUESTED:
		f.view.busy = true
	case agboxv1.EventType_SANDBOX_READY, agboxv1.EventType_SANDBOX_PAUSED, agboxv1.EventType_SANDBOX_UNPAUSED, agboxv1.EventType_SANDBOX_STOPPED, agboxv1.EventType_SANDBOX_FAILED, agboxv1.EventType_SANDBOX_DELETED:
		f.view.busy = false
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *follower) current() view {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.view
	v.running, v.ended = maps.Clone(v.running), maps.Clone(v.ended)
	return v
}

// await returns once the view is as asked for, or false when that can no longer be.
func (f *follower) await(ctx context.Context, as func(view) bool) bool {
	for {
		f.mu.Lock()
		changed, there := f.changed, as(f.view)
		f.mu.Unlock()
		if there {
			return true
		}
		select {
		case <-changed:
		case <-f.done:
			return as(f.current())
		case <-ctx.Done():
			return false
		}
	}
}

// transient: the daemon went away, or says itself that it cannot know.
func transient(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, raw.ErrUnavailable) || errors.Is(err, context.Canceled) {
		return true
	}
	typed, ok := errors.AsType[*raw.Error](err)
	return ok && typed.Reason == "OUTCOME_UNKNOWN"
}

// retryPause keeps a client from asking all the time while the connection to a new daemon is made.
const retryPause = 10 * time.Millisecond

// rest waits until the daemon serves, and a moment.
func (w *world) rest(ctx context.Context) {
	select {
	case <-w.Daemon.Up():
	case <-ctx.Done():
		return
	}
	timer := time.NewTimer(retryPause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
