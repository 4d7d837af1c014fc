package sdk

import (
	"errors"
	"fmt"

	"github.com/agbox-dev/agbox/sdk/raw"
)

// Error is a refusal by the daemon, or its absence; see raw.Error.
type Error = raw.Error

// What errors.Is finds in an *Error.
var (
	ErrSandboxIDAlreadyExists      = raw.ErrSandboxIDAlreadyExists
	ErrExecIDAlreadyExists         = raw.ErrExecIDAlreadyExists
	ErrSandboxConflict             = raw.ErrSandboxConflict
	ErrSandboxNotFound             = raw.ErrSandboxNotFound
	ErrExecNotFound                = raw.ErrExecNotFound
	ErrSandboxNotReady             = raw.ErrSandboxNotReady
	ErrSandboxInvalidState         = raw.ErrSandboxInvalidState
	ErrExecAlreadyTerminal         = raw.ErrExecAlreadyTerminal
	ErrExecNotRunning              = raw.ErrExecNotRunning
	ErrSandboxEventSequenceExpired = raw.ErrSandboxEventSequenceExpired
	ErrFileNotFound                = raw.ErrFileNotFound
	ErrStdinNotOpen                = raw.ErrStdinNotOpen
	ErrNoTerminal                  = raw.ErrNoTerminal
	ErrPortClosed                  = raw.ErrPortClosed
	ErrNoLease                     = raw.ErrNoLease
	ErrInvalidArgument             = raw.ErrInvalidArgument
	ErrUnavailable                 = raw.ErrUnavailable
)

// ErrOutputLimit: a command wrote more than Run was allowed to keep. ReadLog reads all of it.
var ErrOutputLimit = errors.New("sdk: output is larger than the limit")

// ErrDetached: Detach ended the attachment; the command goes on.
var ErrDetached = errors.New("sdk: detached from the exec")

// SandboxFailedError: the sandbox went to FAILED while a call waited for something better. It can
// still be inspected and deleted.
type SandboxFailedError struct {
	ID      string
	Code    string // SANDBOX_CREATE_FAILED, CONTAINER_NOT_RUNNING, …
	Message string
}

func (e *SandboxFailedError) Error() string {
	return fmt.Sprintf("sandbox %s failed (%s): %s", e.ID, e.Code, e.Message)
}

// SandboxDeletedError: somebody deleted the sandbox while a call waited for something else.
type SandboxDeletedError struct {
	ID     string
	Reason string // delete_requested, cleanup_ttl; may be empty
}

func (e *SandboxDeletedError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("sandbox %s was deleted meanwhile", e.ID)
	}
	return fmt.Sprintf("sandbox %s was deleted meanwhile (%s)", e.ID, e.Reason)
}

// ExecFailedError: the exec ended without an exit code of its own command: it could not be run, its
// result is lost, or it was cancelled. A non-zero exit code is no error.
type ExecFailedError struct {
	ID      string
	State   ExecState // ExecFailed or ExecCancelled
	Code    string    // EXEC_COMMAND_NOT_FOUND, EXEC_RESULT_LOST, …; may be empty when cancelled
	Message string
}

func (e *ExecFailedError) Error() string {
	if e.State == ExecCancelled {
		return fmt.Sprintf("exec %s was cancelled", e.ID)
	}
	return fmt.Sprintf("exec %s failed (%s): %s", e.ID, e.Code, e.Message)
}
