package initlink

import "errors"

// ErrClosed: the link was closed while the call waited, or before it.
var ErrClosed = errors.New("initlink: closed")
