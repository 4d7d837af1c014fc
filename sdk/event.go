package sdk

import (
	"context"
	"iter"
	"strings"
	"sync"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// EventType is what happened.
type EventType string

// A daemon newer than this package may send others: ignore what you do not know.
const (
	EventSandboxAccepted         EventType = "SANDBOX_ACCEPTED"
	EventSandboxPreparing        EventType = "SANDBOX_PREPARING"
	EventSandboxReady            EventType = "SANDBOX_READY"
	EventSandboxFailed           EventType = "SANDBOX_FAILED"
	EventSandboxStopRequested    EventType = "SANDBOX_STOP_REQUESTED"
	EventSandboxStopped          EventType = "SANDBOX_STOPPED"
	EventSandboxDeleteRequested  EventType = "SANDBOX_DELETE_REQUESTED"
	EventSandboxDeleted          EventType = "SANDBOX_DELETED"
	EventExecStarted             EventType = "EXEC_STARTED"
	EventExecFinished            EventType = "EXEC_FINISHED"
	EventExecFailed              EventType = "EXEC_FAILED"
	EventExecCancelled           EventType = "EXEC_CANCELLED"
	EventServiceReady            EventType = "SANDBOX_SERVICE_READY"
	EventServiceFailed           EventType = "SANDBOX_SERVICE_FAILED"
	EventCommandEnded            EventType = "SANDBOX_COMMAND_ENDED"
	EventSandboxPauseRequested   EventType = "SANDBOX_PAUSE_REQUESTED"
	EventSandboxPaused           EventType = "SANDBOX_PAUSED"
	EventSandboxUnpauseRequested EventType = "SANDBOX_UNPAUSE_REQUESTED"
	EventSandboxUnpaused         EventType = "SANDBOX_UNPAUSED"
	EventSandboxDrainRequested   EventType = "SANDBOX_DRAIN_REQUESTED"
	EventSandboxExtended         EventType = "SANDBOX_EXTENDED"
	EventSandboxDormant          EventType = "SANDBOX_DORMANT"
	EventSandboxRestarting       EventType = "SANDBOX_RESTARTING"
	EventSandboxDetached         EventType = "SANDBOX_DETACHED"
	EventSandboxLinkLost         EventType = "SANDBOX_LINK_LOST"
	EventSnapshotRequested       EventType = "SANDBOX_SNAPSHOT_REQUESTED"
	EventSnapshotMade            EventType = "SANDBOX_SNAPSHOT_MADE"
	EventSnapshotFailed          EventType = "SANDBOX_SNAPSHOT_FAILED"
)

// Event is one entry in the history of a sandbox. What does not belong to its Type is zero.
type Event struct {
	ID        string
	Sequence  uint64 // from 1, one more for each event of the sandbox
	SandboxID string
	Type      EventType
	Time      time.Time
	State     State // of the sandbox once this has happened
	Replay    bool  // older than the subscription
	Snapshot  bool  // synthetic: tells the current state, has no sequence

	Phase string // of EventSandboxPreparing
	// With the phase "pull": which image, and its bytes as far as they are known.
	Image                 string
	BytesDone, BytesTotal uint64
	QueuedBefore          int    // with the phase "queued": how many others the engine serves before this one
	Ports                 []Port // of EventSandboxReady
	Reason                string // of stops and deletions: stop_requested, idle_ttl, delete_requested, cleanup_ttl

	// Of EventSandboxRestarting: which restart in a row it is, and when it begins.
	Restarts  uint32
	RestartAt time.Time

	Service string // name of the service concerned

	SnapshotID string // of the snapshot concerned
	ForkID     string // of the sandbox that it is made for, if it is a fork's

	// Of an exec, but for the first two also of EventCommandEnded.
	ExecID    string
	ExecState ExecState
	ExitCode  int // 128+N where signal N ended the command
	Signal    int
	TimedOut  bool // of an exec: its own timeout ended it
	OOM       bool // of an exec: the kernel killed it for want of memory
	StartedAt time.Time
	EndedAt   time.Time

	ErrorCode    string
	ErrorMessage string
}

// SubscribeOption changes where a subscription starts.
type SubscribeOption func(*subscribeCall)

type subscribeCall struct {
	from     uint64
	snapshot bool
}

// FromSequence subscribes to the events after this one; without it, to all.
func FromSequence(sequence uint64) SubscribeOption {
	return func(c *subscribeCall) { c.from = sequence }
}

// WithSnapshot has the current state and each running exec told first.
func WithSnapshot() SubscribeOption {
	return func(c *subscribeCall) { c.snapshot = true }
}

// Subscribe yields the events of a sandbox in order, without gap or duplicate, over restarts of the
// daemon too. It ends after EventSandboxDeleted, or with one last error: the context's, ErrUnavailable
// when no daemon ran at the start, or what the daemon refused. Leaving the loop ends it as well.
func (c *Client) Subscribe(ctx context.Context, id string, opts ...SubscribeOption) iter.Seq2[Event, error] {
	var call subscribeCall
	for _, opt := range opts {
		opt(&call)
	}
	req := &agboxv1.SubscribeSandboxEventsRequest{
		SandboxId: id, FromSequence: call.from, IncludeCurrentSnapshot: call.snapshot,
	}
	return func(yield func(Event, error) bool) {
		for p, err := range c.raw.Follow(ctx, req) {
			var event Event
			if err == nil {
				event = eventOf(p)
			}
			if !yield(event, err) {
				return
			}
		}
	}
}

// Subscription is Subscribe as a channel.
type Subscription struct {
	events chan Event
	cancel context.CancelFunc
	done   sync.WaitGroup
	err    error
}

// SubscribeChan starts a subscription. Close must follow.
func (c *Client) SubscribeChan(ctx context.Context, id string, opts ...SubscribeOption) *Subscription {
	ctx, cancel := context.WithCancel(ctx)
	s := &Subscription{events: make(chan Event), cancel: cancel}
	s.done.Go(func() {
		defer close(s.events)
		for event, err := range c.Subscribe(ctx, id, opts...) {
			if err != nil {
				s.err = err
				return
			}
			select {
			case s.events <- event:
			case <-ctx.Done():
				s.err = ctx.Err()
				return
			}
		}
	})
	return s
}

// Events returns the channel, which is closed when the subscription ends. A slow reader only delays
// itself.
func (s *Subscription) Events() <-chan Event { return s.events }

// Err tells why the channel was closed: nil after EventSandboxDeleted. Before that it blocks.
func (s *Subscription) Err() error {
	s.done.Wait()
	return s.err
}

// Close ends the subscription and waits until nothing of it is left. It may be called more than once.
func (s *Subscription) Close() {
	s.cancel()
	s.done.Wait()
}

func eventOf(p *agboxv1.SandboxEvent) Event {
	phase, exec, service, command, snapshot := p.GetSandboxPhase(), p.GetExec(), p.GetService(), p.GetCommand(), p.GetSnapshotDetails()
	event := Event{
		ID:        p.GetEventId(),
		Sequence:  p.GetSequence(),
		SandboxID: p.GetSandboxId(),
		Type:      eventTypeOf(p.GetEventType()),
		Time:      timeOf(p.GetOccurredAt()),
		State:     stateOf(p.GetSandboxState()),
		Replay:    p.GetReplay(),
		Snapshot:  p.GetSnapshot(),
		Phase:     phase.GetPhase(),
		Image:     phase.GetImage(),
		BytesDone: phase.GetBytesDone(), BytesTotal: phase.GetBytesTotal(),
		QueuedBefore: int(phase.GetQueuedBefore()),
		Ports:        portsOf(phase.GetPorts()),
		Reason:       phase.GetReason(),
		Restarts:     phase.GetRestarts(),
		RestartAt:    timeOf(phase.GetRestartAt()),
		Service:      service.GetServiceName(),
		SnapshotID:   snapshot.GetSnapshotId(), ForkID: snapshot.GetForkId(),
		ExecID:    exec.GetExecId(),
		ExecState: execStateOf(exec.GetExecState()),
		ExitCode:  int(exec.GetExitCode()),
		Signal:    int(exec.GetSignal()),
		TimedOut:  exec.GetResources().GetTimedOut(),
		OOM:       exec.GetResources().GetOom(),
		StartedAt: timeOf(exec.GetStartedAt()),
		EndedAt:   timeOf(exec.GetEndedAt()),
		// Only one of these is set.
		ErrorCode:    phase.GetErrorCode() + exec.GetErrorCode() + service.GetErrorCode() + command.GetErrorCode() + snapshot.GetErrorCode(),
		ErrorMessage: phase.GetErrorMessage() + exec.GetErrorMessage() + service.GetErrorMessage() + command.GetErrorMessage() + snapshot.GetErrorMessage(),
	}
	if command != nil {
		event.ExitCode, event.Signal = int(command.ExitCode), int(command.Signal)
		event.StartedAt, event.EndedAt = timeOf(command.StartedAt), timeOf(command.EndedAt)
	}
	return event
}

func eventTypeOf(t agboxv1.EventType) EventType {
	return EventType(strings.TrimPrefix(t.String(), "EVENT_TYPE_"))
}
