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

// sentinel stands for the errors with one of the contract's reasons.
type sentinel struct{ reason, text string }

func (s *sentinel) Error() string { return "raw: " + s.text }

// One sentinel for each reason of the contract; errors.Is finds it in what a call returns.
var (
	ErrSandboxIDAlreadyExists      error = &sentinel{"SANDBOX_ID_ALREADY_EXISTS", "sandbox id was used before"}
	ErrExecIDAlreadyExists         error = &sentinel{"EXEC_ID_ALREADY_EXISTS", "exec id was used before"}
	ErrSandboxConflict             error = &sentinel{"SANDBOX_CONFLICT", "the runtime holds a foreign object under the sandbox's name"}
	ErrSandboxNotFound             error = &sentinel{"SANDBOX_NOT_FOUND", "sandbox not found"}
	ErrExecNotFound                error = &sentinel{"EXEC_NOT_FOUND", "exec not found"}
	ErrSandboxNotReady             error = &sentinel{"SANDBOX_NOT_READY", "sandbox is not ready"}
	ErrSandboxInvalidState         error = &sentinel{"SANDBOX_INVALID_STATE", "sandbox is in the wrong state"}
	ErrExecAlreadyTerminal         error = &sentinel{"EXEC_ALREADY_TERMINAL", "exec has ended already"}
	ErrExecNotRunning              error = &sentinel{"EXEC_NOT_RUNNING", "exec is not running"}
	ErrSandboxEventSequenceExpired error = &sentinel{"SANDBOX_EVENT_SEQUENCE_EXPIRED", "sequence lies outside the retained events"}
	ErrFileNotFound                error = &sentinel{"FILE_NOT_FOUND", "no such file in the sandbox"}
	ErrNoLease                     error = &sentinel{"LEASE_NONE", "sandbox has no lease"}
	ErrStdinNotOpen                error = &sentinel{"STDIN_NOT_OPEN", "exec has no open input"}
	ErrPortClosed                  error = &sentinel{"PORT_CLOSED", "nothing listens on the port"}
	ErrNoTerminal                  error = &sentinel{"NO_TERMINAL", "exec has no terminal"}
	ErrSnapshotNotFound            error = &sentinel{"SNAPSHOT_NOT_FOUND", "snapshot not found"}
	ErrSnapshotIDTaken             error = &sentinel{"SNAPSHOT_ID_TAKEN", "snapshot id is in use"}
	ErrSnapshotInUse               error = &sentinel{"SNAPSHOT_IN_USE", "snapshot is needed by a sandbox"}
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
	s, ok := target.(*sentinel)
	return ok && s.reason == e.Reason
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
	switch {
	case c.host != nil:
		return c.host.unavailable(message)
	case c.socket == "": // somebody else's connection, who has said it
		return message
	}
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
