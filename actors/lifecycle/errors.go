package lifecycle

import (
	"errors"
	"fmt"
)

// What a request can be refused for. A refusal records nothing.
var (
	ErrAlreadyExists  = errors.New("lifecycle: sandbox exists already")
	ErrNotFound       = errors.New("lifecycle: no such sandbox")
	ErrInvalidState   = errors.New("lifecycle: sandbox is not in a state for this")
	ErrNotReady       = errors.New("lifecycle: sandbox is not ready")
	ErrExecExists     = errors.New("lifecycle: exec exists already")
	ErrExecNotRunning = errors.New("lifecycle: exec is not running")
)

// Refusal is a request that does not fit the state. It wraps one of the errors above; Message is for a person.
type Refusal struct {
	Kind    error
	Message string
}

func (r *Refusal) Error() string { return r.Message }
func (r *Refusal) Unwrap() error { return r.Kind }

func refuse(kind error, format string, args ...any) error {
	return &Refusal{Kind: kind, Message: fmt.Sprintf(format, args...)}
}
