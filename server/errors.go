package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/guest/files"
	"github.com/agbox-dev/agbox/persist"
	"github.com/agbox-dev/agbox/server/refusal"
	"github.com/agbox-dev/agbox/server/spec"
	"github.com/agbox-dev/agbox/text"
)

// Domain is the ErrorInfo domain of every error status.
const Domain = "agents-sandbox"

// Reasons beside those of invalid input, which package spec names.
const (
	reasonSandboxIDTaken  = "SANDBOX_ID_ALREADY_EXISTS"
	reasonExecIDTaken     = "EXEC_ID_ALREADY_EXISTS"
	reasonConflict        = "SANDBOX_CONFLICT"
	reasonSandboxNotFound = "SANDBOX_NOT_FOUND"
	reasonExecNotFound    = "EXEC_NOT_FOUND"
	reasonNotReady        = "SANDBOX_NOT_READY"
	reasonInvalidState    = "SANDBOX_INVALID_STATE"
	reasonExecTerminal    = "EXEC_ALREADY_TERMINAL"
	reasonExecNotRunning  = "EXEC_NOT_RUNNING"
	reasonDiskFull        = "DISK_FULL"
	reasonTooMany         = "SANDBOXES_TOO_MANY"
	reasonOverlap         = "MOUNT_SOURCE_OVERLAPS"
	reasonDatabaseMoved   = "DATABASE_MOVED"
	reasonNoLease         = "LEASE_NONE"
	reasonShuttingDown    = "DAEMON_SHUTTING_DOWN"
	reasonOutcomeUnknown  = "OUTCOME_UNKNOWN"
	reasonDocker          = "DOCKER_UNAVAILABLE"
	reasonCancelled       = "REQUEST_CANCELLED"
	reasonDeadline        = "REQUEST_DEADLINE_EXCEEDED"
	reasonInternal        = "INTERNAL"
)

// retryHint is when a client may try again after an error that passes by itself.
const retryHint = time.Second

type errorKind struct {
	is     error
	code   codes.Code
	reason string
	text   string
}

func (k errorKind) message(err error, ids map[string]string) string {
	id := cmp.Or(ids["exec_id"], ids["sandbox_id"])
	if strings.Contains(k.reason, "SANDBOX") {
		id = ids["sandbox_id"]
	}
	if strings.Contains(k.reason, "SNAPSHOT") {
		id = ids["snapshot_id"]
	}
	words, worded := errors.AsType[*files.Refusal](err)
	switch {
	case worded:
		return words.Message
	case k.text == "":
		return err.Error()
	case strings.Contains(k.text, "%s"):
		return fmt.Sprintf(k.text, id)
	}
	return k.text
}

// kinds maps what the layers below refuse to what clients see. The first that matches counts. text is for a person,
// with the id concerned in place of %s; "" keeps the error's own words, which then are meant for people.
var kinds = []errorKind{
	{actors.ErrSandboxIDTaken, codes.AlreadyExists, reasonSandboxIDTaken,
		"sandbox id %s was used before: choose another, ids are never used twice"},
	{actors.ErrExecIDTaken, codes.AlreadyExists, reasonExecIDTaken,
		"exec id %s was used before: choose another, ids are never used twice"},
	{runtime.ErrConflict, codes.AlreadyExists, reasonConflict, ""},
	{actors.ErrNotFound, codes.NotFound, reasonSandboxNotFound,
		"there is no sandbox %s: it was never created, or its history was removed"},
	{actors.ErrExecNotFound, codes.NotFound, reasonExecNotFound,
		"there is no exec %s: it was never started, or its history was removed"},
	{runtime.ErrExecTerminal, codes.FailedPrecondition, reasonExecTerminal,
		"exec %s has ended: GetExec tells how"},
	{runtime.ErrExecNotStarted, codes.FailedPrecondition, reasonExecNotRunning,
		"exec %s was accepted and does not run yet: try again in a moment"},
	{files.ErrNotRunning, codes.FailedPrecondition, reasonNotReady, "sandbox %s ended meanwhile: ask again once it is READY"},
	{errStalled, codes.DeadlineExceeded, reasonDeadline, ""},
	{lifecycle.ErrNotFound, codes.NotFound, reasonSandboxNotFound, ""},
	{lifecycle.ErrNotReady, codes.FailedPrecondition, reasonNotReady, ""},
	{lifecycle.ErrInvalidState, codes.FailedPrecondition, reasonInvalidState, ""},
	{lifecycle.ErrExecNotRunning, codes.FailedPrecondition, reasonExecNotRunning, ""},
	{actors.ErrNoLease, codes.FailedPrecondition, reasonNoLease,
		"sandbox %s has no lease to hold: it was created without one, was detached, or is being deleted"},
	{actors.ErrShuttingDown, codes.Unavailable, reasonShuttingDown,
		"agboxd is shutting down: try again when it is back"},
	{persist.ErrClosed, codes.Unavailable, reasonShuttingDown,
		"agboxd is shutting down: try again when it is back"},
	{persist.ErrNoSpace, codes.ResourceExhausted, reasonDiskFull, ""},
	{errNoRoom, codes.ResourceExhausted, reasonDiskFull, ""},
	{actors.ErrOverlap, codes.FailedPrecondition, reasonOverlap, ""},
	{actors.ErrTooMany, codes.ResourceExhausted, reasonTooMany, ""},
	{persist.ErrMoved, codes.FailedPrecondition, reasonDatabaseMoved, ""},
	{persist.ErrNoSandbox, codes.NotFound, reasonSandboxNotFound,
		"there is no sandbox %s: it was never created, or its history was removed"},
	{persist.ErrNoExec, codes.NotFound, reasonExecNotFound,
		"there is no exec %s: it was never started, or its history was removed"},
	{runtime.ErrSnapshotNotFound, codes.NotFound, reasonSnapshotNotFound,
		"there is no snapshot %s: it was never made, or it was deleted"},
	{runtime.ErrSnapshotIDTaken, codes.AlreadyExists, reasonSnapshotIDTaken, ""},
	{runtime.ErrSnapshotTooLarge, codes.ResourceExhausted, reasonSnapshotTooLarge, ""},
	{runtime.ErrSnapshotInUse, codes.FailedPrecondition, reasonSnapshotInUse, ""},
	{runtime.ErrUnreachable, codes.Unavailable, reasonDocker, ""},
	{context.Canceled, codes.Canceled, reasonCancelled, ""},
	{context.DeadlineExceeded, codes.DeadlineExceeded, reasonDeadline, ""},
	{runtime.ErrOutcomeUnknown, codes.Unknown, reasonOutcomeUnknown,
		"whether the request on %s was carried out is unknown: read its state before trying again"},
}

// answer makes a status with ErrorInfo of what a handler returned, with ids, those that the request names.
func (s *Server) answer(err error, ids map[string]string) error {
	if _, done := status.FromError(err); done { // nil, or of the stream itself
		return err
	}
	maps.Copy(ids, refusal.Concerned(err))
	r := s.refused(err, ids)
	maps.Copy(ids, r.Metadata)
	if st := newStatus(r.Code, r.Reason, r.Message, ids); proto.Size(st.Proto()) <= maxStatus {
		return st.Err()
	}
	for key, value := range ids {
		ids[key] = text.Bound(value, maxValue)
	}
	return newStatus(r.Code, r.Reason, text.Bound(r.Message, maxMessage), ids).Err()
}

func (s *Server) refused(err error, ids map[string]string) *refusal.Error {
	if r, ok := errors.AsType[*refusal.Error](err); ok {
		return r
	}
	if invalid, ok := errors.AsType[*spec.Error](err); ok {
		r := refusal.New(codes.InvalidArgument, invalid.Reason, invalid.Field, "%s", invalid.Message)
		maps.Copy(r.Metadata, invalid.Metadata)
		return r
	}
	for _, kind := range fileKinds {
		if errors.Is(err, kind.is) {
			return refusal.New(kind.code, kind.reason, kind.field, "%v", err)
		}
	}
	for _, kind := range kinds {
		if errors.Is(err, kind.is) {
			return refusal.New(kind.code, kind.reason, "", "%s", kind.message(err, ids))
		}
	}
	s.log.Error("request failed", slog.Any("error", err))
	return refusal.New(codes.Internal, reasonInternal, "", "agboxd failed: %v: see its log", err)
}

// A status travels in headers, twice, of which many clients take no more than 8 KiB. Where one is larger, what it repeats of a
// request is cut.
const (
	maxStatus  = 2 << 10
	maxMessage = 1 << 10
	maxValue   = 256
)

// newStatus makes valid what message and metadata repeat of sandboxes and the engine: gRPC sends nothing else.
func newStatus(code codes.Code, reason, message string, metadata map[string]string) *status.Status {
	for key, value := range metadata {
		if metadata[key] = strings.ToValidUTF8(value, "?"); value == "" {
			delete(metadata, key)
		}
	}
	st := status.New(code, strings.ToValidUTF8(message, "?"))
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Domain: Domain, Reason: reason, Metadata: metadata}}
	if code == codes.Unavailable {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retryHint)})
	}
	if detailed, err := st.WithDetails(details...); err == nil {
		return detailed
	}
	return st
}
