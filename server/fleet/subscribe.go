package fleet

import (
	"errors"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/refusal"
)

// reasonExpired: the log does not go on from there, see expired.
const reasonExpired = "SANDBOX_EVENT_SEQUENCE_EXPIRED"

// chunk is how many events a subscription reads at a time; a slow client holds no more than these.
const chunk = 64

// SubscribeSandboxEvents follows the log, not the actor: a subscriber is a cursor, and a slow one an old cursor.
func (s *Fleet) SubscribeSandboxEvents(req *agboxv1.SubscribeSandboxEventsRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxEvent]) error {
	view, err := s.system.Sandbox(req.SandboxId)
	if err != nil {
		return err
	}
	oldest, newest, err := s.db.Bounds(req.SandboxId)
	if err != nil {
		return err
	}
	if from := req.FromSequence; from > newest || from > 0 && from+1 < oldest {
		return expired(req.SandboxId, from, oldest, newest)
	}
	if req.IncludeCurrentSnapshot {
		for _, event := range snapshot(view) {
			if err := stream.Send(event); err != nil {
				return err
			}
		}
	}
	return s.follow(req.SandboxId, req.FromSequence, newest, stream)
}

// expired refuses to go on from a sequence that is not followed by what the sandbox keeps.
func expired(sandboxID string, from, oldest, newest uint64) error {
	return refusal.Concerning(refusal.New(codes.OutOfRange, reasonExpired, "",
		"sequence %d is not one to continue from: sandbox %s keeps %d to %d: begin another one, with include_current_snapshot",
		from, sandboxID, oldest, newest),
		"sandbox_id", sandboxID, "from_sequence", strconv.FormatUint(from, 10),
		"oldest_sequence", strconv.FormatUint(oldest, 10), "newest_sequence", strconv.FormatUint(newest, 10))
}

// follow sends what comes after cursor, for as long as the client stays. Events up to replayed were there before
// it asked. A client that reads so slowly that events were removed before it came to them is told so; one that began at 0
// has asked for what there is.
func (s *Fleet) follow(sandboxID string, cursor, replayed uint64, stream grpc.ServerStreamingServer[agboxv1.SandboxEvent]) error {
	for {
		changed := s.db.Changed(sandboxID)
		events, err := s.db.EncodedEvents(sandboxID, cursor, chunk)
		if errors.Is(err, persist.ErrNoSandbox) {
			return nil // purged: there is nothing more to tell
		} else if err != nil {
			return err
		}
		if len(events) > 0 && cursor > 0 && events[0].Sequence != cursor+1 {
			return s.missed(sandboxID, cursor)
		}
		for _, event := range events {
			if err := stream.SendMsg(&encodedEvent{event.Data, event.Sequence <= replayed}); err != nil {
				return err
			}
			cursor = event.Sequence
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// missed tells a reader that the events after its cursor were removed.
func (s *Fleet) missed(sandboxID string, cursor uint64) error {
	oldest, newest, err := s.db.Bounds(sandboxID)
	if err != nil {
		return err
	}
	return expired(sandboxID, cursor, oldest, newest)
}
