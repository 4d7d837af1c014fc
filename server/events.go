package server

import (
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// chunk is how many events a subscription reads at a time; a slow client holds no more than these.
const chunk = 64

// SubscribeSandboxEvents follows the log, not the actor: a subscriber is a cursor, and a slow one an old cursor.
func (s *Server) SubscribeSandboxEvents(req *agboxv1.SubscribeSandboxEventsRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxEvent]) error {
	view, err := s.system.Sandbox(req.SandboxId)
	if err != nil {
		return s.fail(err, "sandbox_id", req.SandboxId)
	}
	oldest, newest, err := s.db.Bounds(req.SandboxId)
	if err != nil {
		return s.fail(err, "sandbox_id", req.SandboxId)
	}
	if from := req.FromSequence; from > newest || from > 0 && from+1 < oldest {
		return newStatus(codes.OutOfRange, reasonExpired,
			fmt.Sprintf("sequence %d is not one to continue from: sandbox %s keeps %d to %d", from, req.SandboxId, oldest, newest),
			map[string]string{
				"sandbox_id": req.SandboxId, "from_sequence": strconv.FormatUint(from, 10),
				"oldest_sequence": strconv.FormatUint(oldest, 10), "newest_sequence": strconv.FormatUint(newest, 10),
			})
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

// follow sends what comes after cursor, for as long as the client stays. Events up to replayed were there before
// it asked.
func (s *Server) follow(sandboxID string, cursor, replayed uint64, stream grpc.ServerStreamingServer[agboxv1.SandboxEvent]) error {
	for {
		changed := s.db.Changed(sandboxID)
		events, err := s.db.Events(sandboxID, cursor, chunk)
		if errors.Is(err, persist.ErrNoSandbox) {
			return nil // purged: there is nothing more to tell
		} else if err != nil {
			return s.fail(err, "sandbox_id", sandboxID)
		}
		for _, event := range events {
			event.Replay = event.Sequence <= replayed
			if err := stream.Send(event); err != nil {
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
			return s.fail(stream.Context().Err(), "sandbox_id", sandboxID)
		case <-s.closing:
			return s.fail(actors.ErrShuttingDown, "sandbox_id", sandboxID)
		}
	}
}
