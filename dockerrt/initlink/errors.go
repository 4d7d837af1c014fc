package initlink

import "errors"

var (
	// ErrClosed: the link was closed while the call waited, or before it.
	ErrClosed = errors.New("initlink: closed")
	// ErrExecBusy: another Exec call waits for the same id.
	ErrExecBusy = errors.New("initlink: exec is already waited for")
)
