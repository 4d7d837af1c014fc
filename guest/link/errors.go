package link

import "errors"

var (
	// ErrClosed: the link was closed while the call waited, or before it.
	ErrClosed = errors.New("link: closed")
	// ErrExecUnknown: init knows no exec with that id.
	ErrExecUnknown = errors.New("link: no such exec")
	// ErrExecEnded: the exec's own process has ended.
	ErrExecEnded = errors.New("link: the exec has ended")
	// ErrSignalUnknown: the connection was lost before init answered. The signal may or may not have arrived;
	// it is not sent again.
	ErrSignalUnknown = errors.New("link: connection lost, unknown whether the signal was sent")
	// ErrNoTerminal: the exec was started without a terminal.
	ErrNoTerminal = errors.New("link: the exec has no terminal")
	// ErrPortClosed: nothing listens on the port.
	ErrPortClosed = errors.New("link: nothing listens on the port")
	// ErrLost: the connection to init was lost before it answered.
	ErrLost = errors.New("link: the connection to init was lost")
	// ErrThawed: Thaw was called while Freeze waited.
	ErrThawed = errors.New("link: thawed meanwhile")
)
