package server

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/persist"
	"github.com/agbox-dev/agbox/server/spec"
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
	reasonExpired         = "SANDBOX_EVENT_SEQUENCE_EXPIRED"
	reasonDiskFull        = "DISK_FULL"
	reasonShuttingDown    = "DAEMON_SHUTTING_DOWN"
	reasonOutcomeUnknown  = "OUTCOME_UNKNOWN"
	reasonDocker          = "DOCKER_UNAVAILABLE"
	reasonCancelled       = "REQUEST_CANCELLED"
	reasonDeadline        = "REQUEST_DEADLINE_EXCEEDED"
	reasonInternal        = "INTERNAL"
	reasonUnsupported     = "NOT_SUPPORTED"
)

// retryHint is when a client may try again after an error that passes by itself.
const retryHint = time.Second

// kinds maps what the layers below refuse to what clients see. The first that matches counts.
var kinds = []struct {
	is     error
	code   codes.Code
	reason string
}{
	{actors.ErrSandboxIDTaken, codes.AlreadyExists, reasonSandboxIDTaken},
	{actors.ErrExecIDTaken, codes.AlreadyExists, reasonExecIDTaken},
	{actors.ErrConflict, codes.AlreadyExists, reasonConflict},
	{actors.ErrNotFound, codes.NotFound, reasonSandboxNotFound},
	{actors.ErrExecNotFound, codes.NotFound, reasonExecNotFound},
	{actors.ErrExecTerminal, codes.FailedPrecondition, reasonExecTerminal},
	{lifecycle.ErrNotFound, codes.NotFound, reasonSandboxNotFound},
	{lifecycle.ErrNotReady, codes.FailedPrecondition, reasonNotReady},
	{lifecycle.ErrInvalidState, codes.FailedPrecondition, reasonInvalidState},
	{lifecycle.ErrExecNotRunning, codes.FailedPrecondition, reasonExecNotRunning},
	{actors.ErrShuttingDown, codes.Unavailable, reasonShuttingDown},
	{persist.ErrClosed, codes.Unavailable, reasonShuttingDown},
	{persist.ErrNoSpace, codes.ResourceExhausted, reasonDiskFull},
	{persist.ErrNoSandbox, codes.NotFound, reasonSandboxNotFound},
	{persist.ErrNoExec, codes.NotFound, reasonExecNotFound},
	{actors.ErrUnreachable, codes.Unavailable, reasonDocker},
	{context.Canceled, codes.Canceled, reasonCancelled},
	{context.DeadlineExceeded, codes.DeadlineExceeded, reasonDeadline},
	{actors.ErrOutcomeUnknown, codes.Unknown, reasonOutcomeUnknown},
}

// fail turns an error into a status with ErrorInfo. ids become metadata; they alternate keys and values.
func (s *Server) fail(err error, ids ...string) error {
	metadata := map[string]string{}
	for i := 0; i+1 < len(ids); i += 2 {
		if ids[i+1] != "" {
			metadata[ids[i]] = ids[i+1]
		}
	}
	if invalid, ok := errors.AsType[*spec.Error](err); ok {
		maps.Copy(metadata, invalid.Metadata)
		metadata["field"] = invalid.Field
		return newStatus(codes.InvalidArgument, invalid.Reason, invalid.Field+": "+invalid.Message, metadata)
	}
	for _, kind := range kinds {
		if errors.Is(err, kind.is) {
			return newStatus(kind.code, kind.reason, err.Error(), metadata)
		}
	}
	s.log.Error("request failed", slog.Any("error", err))
	return newStatus(codes.Internal, reasonInternal, "agboxd failed: "+err.Error()+": see its log", metadata)
}

func newStatus(code codes.Code, reason, message string, metadata map[string]string) error {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Domain: Domain, Reason: reason, Metadata: metadata}}
	if code == codes.Unavailable {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retryHint)})
	}
	st, err := status.New(code, message).WithDetails(details...)
	if err != nil {
		return status.Error(code, message)
	}
	return st.Err()
}
