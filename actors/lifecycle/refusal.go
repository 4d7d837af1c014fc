package lifecycle

import (
	"errors"
	"fmt"
	"strings"
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

func refusal(s State, c Command, kind error, why string) error {
	switch {
	case kind == ErrAlreadyExists:
		return refuse(kind, "sandbox %s exists already", s.SandboxID)
	case s.Phase == None:
		return refuse(ErrNotFound, "there is no sandbox %s", s.SandboxID)
	}
	verb, _, _ := strings.Cut(c.name(), " ")
	return refuse(kind, "cannot %s sandbox %s, which is %s: %s", verb, s.SandboxID, s.label(), why)
}

// NotReady refuses what needs a READY sandbox.
func NotReady(s State) error {
	return refuse(ErrNotReady, "sandbox %s is %s: commands run only while it is READY%s", s.SandboxID, s.label(), s.way())
}

// NotReachable is why nobody can connect to a port of the sandbox.
func NotReachable(s State) error {
	return refuse(ErrNotReady, "sandbox %s is %s: its ports are reached while it is READY or DRAINING, or where its spec has wake: traffic%s",
		s.SandboxID, s.label(), s.way())
}

// label names the state for a person, an operation that has not shown in the phase included.
func (s State) label() string {
	name := strings.TrimPrefix(s.Phase.String(), "SANDBOX_STATE_")
	switch {
	case s.Operation == Stopping || s.Operation == Killing:
		return name + " and stopping"
	case s.Operation == Restarting:
		return name + " and being restarted"
	case s.Operation == Pausing:
		return name + " and being paused"
	case s.Operation == Unpausing:
		return name + " and being unpaused"
	}
	return name
}

func (s State) way() string {
	switch s.Phase {
	case Pending:
		return "; wait for SANDBOX_READY"
	case Stopped:
		return "; resume it first"
	case Paused:
		return "; unpause it first"
	case Draining:
		return "; it takes no more commands before it is stopped"
	case Failed:
		return "; it failed: " + s.ErrorMessage
	case Dormant:
		if s.ErrorMessage != "" {
			return "; it could not be made: " + s.ErrorMessage + "; the next use tries again"
		}
	}
	return ""
}
