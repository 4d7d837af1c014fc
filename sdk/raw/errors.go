package raw

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrSocketPath reports that the environment names no usable place for the daemon's socket.
var ErrSocketPath = errors.New("raw: no socket path")

// One sentinel for each reason of the contract; errors.Is finds it in what a call returns.
var (
	ErrSandboxIDAlreadyExists      = errors.New("raw: sandbox id was used before")
	ErrExecIDAlreadyExists         = errors.New("raw: exec id was used before")
	ErrSandboxConflict             = errors.New("raw: the runtime holds a foreign object under the sandbox's name")
	ErrSandboxNotFound             = errors.New("raw: sandbox not found")
	ErrExecNotFound                = errors.New("raw: exec not found")
	ErrSandboxNotReady             = errors.New("raw: sandbox is not ready")
	ErrSandboxInvalidState         = errors.New("raw: sandbox is in the wrong state")
	ErrExecAlreadyTerminal         = errors.New("raw: exec has ended already")
	ErrExecNotRunning              = errors.New("raw: exec is not running")
	ErrSandboxEventSequenceExpired = errors.New("raw: sequence lies outside the retained events")
	ErrFileNotFound                = errors.New("raw: no such file in the sandbox")
	ErrNoLease                     = errors.New("raw: sandbox has no lease")
	ErrStdinNotOpen                = errors.New("raw: exec has no open input")
	ErrNoTerminal                  = errors.New("raw: exec has no terminal")
)

// Sentinels for a status code; reasons under these codes are many or none.
var (
	// ErrInvalidArgument: the request was refused as malformed and nothing has been done;
	// Metadata["field"] of the *Error names the field.
	ErrInvalidArgument = errors.New("raw: invalid argument")
	// ErrUnavailable: no daemon answers, or it went away during the call, whose outcome is then
	// unknown.
	ErrUnavailable = errors.New("raw: daemon unavailable")
)

const errorDomain = "agents-sandbox"

var sentinels = map[string]error{
	"SANDBOX_ID_ALREADY_EXISTS":      ErrSandboxIDAlreadyExists,
	"EXEC_ID_ALREADY_EXISTS":         ErrExecIDAlreadyExists,
	"SANDBOX_CONFLICT":               ErrSandboxConflict,
	"SANDBOX_NOT_FOUND":              ErrSandboxNotFound,
	"EXEC_NOT_FOUND":                 ErrExecNotFound,
	"SANDBOX_NOT_READY":              ErrSandboxNotReady,
	"SANDBOX_INVALID_STATE":          ErrSandboxInvalidState,
	"EXEC_ALREADY_TERMINAL":          ErrExecAlreadyTerminal,
	"EXEC_NOT_RUNNING":               ErrExecNotRunning,
	"SANDBOX_EVENT_SEQUENCE_EXPIRED": ErrSandboxEventSequenceExpired,
	"FILE_NOT_FOUND":                 ErrFileNotFound,
	"SNAPSHOT_NOT_FOUND":             ErrSnapshotNotFound,
	"SNAPSHOT_ID_TAKEN":              ErrSnapshotIDTaken,
	"SNAPSHOT_IN_USE":                ErrSnapshotInUse,
	"LEASE_NONE":                     ErrNoLease,
	"STDIN_NOT_OPEN":                 ErrStdinNotOpen,
	"NO_TERMINAL":                    ErrNoTerminal,
}

// Error is what every failed call returns. errors.Is matches it with the sentinel of its reason,
// with ErrInvalidArgument or ErrUnavailable by its code, and with context.Canceled or
// context.DeadlineExceeded where the call ended so.
type Error struct {
	Code codes.Code
	// Reason is the daemon's own, empty where the daemon gave none; it may be one that has no
	// sentinel here.
	Reason string
	// Message is for people: what happened, to what, what to do next.
	Message string
	// Metadata holds the ids concerned: sandbox_id, exec_id, field, … May be nil.
	Metadata map[string]string

	status *status.Status
}

func (e *Error) Error() string { return e.Message }

// GRPCStatus returns the status as it was received, for status.FromError.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// Is reports whether target is a sentinel of this error's reason or code.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrInvalidArgument:
		return e.Code == codes.InvalidArgument
	case ErrUnavailable:
		return e.Code == codes.Unavailable
	case context.Canceled:
		return e.Code == codes.Canceled
	case context.DeadlineExceeded:
		return e.Code == codes.DeadlineExceeded
	}
	sentinel, ok := sentinels[e.Reason]
	return ok && sentinel == target
}

// typed turns a status error into an *Error. One that the transport made itself, because nobody
// answers on the socket, says so in words for people.
func (c *Client) typed(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	e := &Error{Code: st.Code(), Message: st.Message(), status: st}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == errorDomain {
			e.Reason, e.Metadata = info.GetReason(), info.GetMetadata()
			break
		}
	}
	if e.Code == codes.Unavailable && e.Reason == "" {
		e.Message = c.unavailable(st.Message())
	}
	if e.Message == "" {
		e.Message = e.Code.String()
	}
	return e
}

func (c *Client) unavailable(message string) string {
	if failure := c.dialing.Load(); failure != nil && *failure != nil {
		if errors.Is(*failure, fs.ErrPermission) {
			return fmt.Sprintf("agboxd's socket is not yours to use: %v: run as the user who started agboxd", *failure)
		}
		elsewhere := ""
		if len(c.others) > 0 {
			elsewhere = ", nor on " + strings.Join(c.others, ", ")
		}
		return fmt.Sprintf("agboxd is not running: %v%s (one that was started with another XDG_RUNTIME_DIR is not seen from here): start agboxd", *failure, elsewhere)
	}
	return fmt.Sprintf("agboxd went away from %s during the call (%s): start agboxd", c.socket, message)
}
