package dockerrt

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
)

var (
	// ErrUnreachable: no Docker engine answers.
	ErrUnreachable = errors.New("dockerrt: docker cannot be reached")
	// ErrPoolExhausted: every subnet of the configured pool is in use.
	ErrPoolExhausted = errors.New("dockerrt: no free subnet")
	// ErrMissing: a part of the sandbox that should exist does not.
	ErrMissing = errors.New("dockerrt: part of the sandbox is missing")
)

// codedError carries the error code of a FAILED event.
type codedError struct {
	code string
	err  error
}

func (e *codedError) Error() string     { return e.err.Error() }
func (e *codedError) Unwrap() error     { return e.err }
func (e *codedError) ErrorCode() string { return e.code }

func coded(code, format string, args ...any) error {
	return &codedError{code, fmt.Errorf(format, args...)}
}

func isNotFound(err error) bool { return errdefs.IsNotFound(err) }
func isConflict(err error) bool { return errdefs.IsConflict(err) }
