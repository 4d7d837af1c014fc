package protocol

import "errors"

var (
	// ErrMalformed: the bytes are not a frame of this protocol. The stream cannot be used further.
	ErrMalformed = errors.New("protocol: malformed frame")
	// ErrTooBig: a body exceeds MaxFrame.
	ErrTooBig = errors.New("protocol: frame exceeds 4 MiB")
)

// Error codes of a Result whose command could not be run. They are the error_code of EXEC_FAILED.
const (
	// CodeCommandNotFound comes with exit code 127, all others with 126.
	CodeCommandNotFound      = "EXEC_COMMAND_NOT_FOUND"
	CodeCommandNotExecutable = "EXEC_COMMAND_NOT_EXECUTABLE"
	CodeCwdInvalid           = "EXEC_CWD_INVALID"
	CodeUserUnknown          = "EXEC_USER_UNKNOWN"
	CodeStartFailed          = "EXEC_START_FAILED"
	// CodeNoTerminal: the host, or the sandbox, has no pseudo terminal to give.
	CodeNoTerminal = "EXEC_TERMINAL_UNAVAILABLE"
	// CodeStopping: the sandbox was being stopped already.
	CodeStopping = "EXEC_SANDBOX_STOPPING"
)
