package dockerrt

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/agbox-dev/agbox/actors/runtime"
)

var (
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

// reached marks an error that means that the engine went away, or never was there, as runtime.ErrUnreachable: the
// call may be made again. Everything the engine itself said stays as it is.
func reached(err error) error {
	if err == nil || errors.Is(err, runtime.ErrUnreachable) {
		return err
	}
	_, broken := errors.AsType[*net.OpError](err)
	if broken || client.IsErrConnectionFailed(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", runtime.ErrUnreachable, err)
	}
	return err
}
