package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/agbox-dev/agbox/actors/runtime"
)

// ErrMissing: a part of the sandbox that should exist does not.
var ErrMissing = errors.New("dockerrt: part of the sandbox is missing")

// codedError is a runtime.CodedError.
type codedError struct {
	code string
	err  error
}

func (e *codedError) Error() string     { return e.err.Error() }
func (e *codedError) Unwrap() error     { return e.err }
func (e *codedError) ErrorCode() string { return e.code }

// Coded is fmt.Errorf with the error code of a FAILED event.
func Coded(code, format string, args ...any) error {
	return &codedError{code, fmt.Errorf(format, args...)}
}

// Code returns the code of an error that Coded made, "" for any other.
func Code(err error) string {
	if known, ok := errors.AsType[*codedError](err); ok {
		return known.code
	}
	return ""
}

// IsNotFound and IsConflict are what the engine answers.
func IsNotFound(err error) bool { return errdefs.IsNotFound(err) }
func IsConflict(err error) bool { return errdefs.IsConflict(err) }

// ImageGone: there is no such image, or another removal of it was faster, of which the engine makes a failure of its own.
func ImageGone(err error) bool {
	return IsNotFound(err) || err != nil && strings.Contains(err.Error(), "unrecognized image ID")
}

// removalInProgress: somebody else removes the container already.
func removalInProgress(err error) bool {
	return IsConflict(err) && strings.Contains(err.Error(), "already in progress")
}

// Unreachable marks an error that means that the engine went away, or never was there, as runtime.ErrUnreachable: the
// call may be made again. Everything the engine itself said stays as it is.
func Unreachable(err error) error {
	if err == nil || errors.Is(err, runtime.ErrUnreachable) {
		return err
	}
	_, broken := errors.AsType[*net.OpError](err)
	if broken || client.IsErrConnectionFailed(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", runtime.ErrUnreachable, err)
	}
	return err
}

// Mark is Unreachable for a method that is called from outside: defer engine.Mark(&err). No transport can do it, as the client
// replaces the errors of its own.
func Mark(err *error) { *err = Unreachable(*err) }

// What an engine refuses in passing is tried again this often, with delays that double: for 6 s in all.
const (
	Tries    = 8
	TryDelay = 50 * time.Millisecond
)

// RetryTransient tries a call again that may be made twice without harm, and returns its last error. An error of ours with
// a code, one that did not reach the engine, or one marked backoff.Permanent, is final.
func RetryTransient(ctx context.Context, do func() error) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.Multiplier, wait.RandomizationFactor = TryDelay, 2, 0
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := Unreachable(do())
		if Code(err) != "" || errors.Is(err, runtime.ErrUnreachable) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithMaxTries(Tries), backoff.WithBackOff(wait))
	return err
}

// ValueOf is what p points to, or nothing.
func ValueOf[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}
