package runtime

import "errors"

var (
	// ErrConflict: the runtime holds an object under a name that the sandbox needs, and it is not ours.
	ErrConflict = errors.New("runtime: name is taken by an object that is not ours")
	// ErrUnreachable: the runtime's engine does not answer. What was asked of it may or may not have happened, and
	// may be asked again.
	ErrUnreachable = errors.New("runtime: docker cannot be reached")
	// ErrOutcomeUnknown: the request may or may not have been carried out; read the sandbox's state.
	ErrOutcomeUnknown = errors.New("runtime: outcome unknown")
	// ErrExecTerminal: the exec ended before.
	ErrExecTerminal = errors.New("runtime: exec has ended")
	// ErrExecNotStarted: the exec was accepted, and its command does not run yet.
	ErrExecNotStarted = errors.New("runtime: exec was not started yet")
	// ErrStdinClosed: the exec's input was closed for good, or the exec has ended, or it was started without one.
	ErrStdinClosed = errors.New("runtime: exec has no open standard input")
	// ErrNoTerminal: the exec was started without a terminal.
	ErrNoTerminal = errors.New("runtime: exec has no terminal")
	// ErrPortClosed: nothing listens on the port.
	ErrPortClosed = errors.New("runtime: nothing listens on the port")
	// ErrPortReset: the connection broke as it was made; another one may hold.
	ErrPortReset = errors.New("runtime: the connection broke as it was made")
	// ErrSnapshotNotFound: there is no such snapshot.
	ErrSnapshotNotFound = errors.New("runtime: no such snapshot")
	// ErrSnapshotIDTaken: there is a snapshot with this id, or another image under the name that it needs.
	ErrSnapshotIDTaken = errors.New("runtime: snapshot id is in use")
	// ErrSnapshotInUse: the snapshot is needed, or the engine says so.
	ErrSnapshotInUse = errors.New("runtime: snapshot is in use")
	// ErrSnapshotTooLarge: the files of the sandbox are more than a snapshot may have, or than there is room for.
	ErrSnapshotTooLarge = errors.New("runtime: too large for a snapshot")
	// ErrNothingToKeep: the sandbox has no primary, or the image that it was made from is gone.
	ErrNothingToKeep = errors.New("runtime: nothing to make a snapshot of")
)

// CodedError is an error that has an error code of its own for the FAILED event.
type CodedError interface {
	error
	ErrorCode() string
}

// Codes of what the runtime finds, beside those of its CodedErrors.
const (
	CodeContainerNotRunning = "CONTAINER_NOT_RUNNING"
	CodeExecStartFailed     = "EXEC_START_FAILED"
	CodeOutOfMemory         = "SANDBOX_OOM"
	CodeServiceNotRunning   = "SERVICE_NOT_RUNNING"
	CodeServiceFailed       = "SERVICE_FAILED"
	CodeLinkLost            = "LINK_LOST"
	CodeNetworkLost         = "NETWORK_LOST"
)
