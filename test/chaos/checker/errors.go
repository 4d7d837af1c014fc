package checker

import "errors"

// ErrUnreadable: what should be checked cannot be read; nothing is said about it.
var ErrUnreadable = errors.New("checker: cannot read")
