package proxy

import "errors"

// ErrBadRule: a rule asks for a fault at a point of a call where it cannot be made.
var ErrBadRule = errors.New("proxy: bad rule")

// errCut ends a reply in its middle.
var errCut = errors.New("proxy: connection cut")
