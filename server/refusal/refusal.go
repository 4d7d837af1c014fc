// Package refusal holds what a call is refused with, in the words that clients see.
package refusal

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
)

// MaxRequest is the size of a request in bytes, gRPC's own default. From twice that on gRPC refuses it unread.
const MaxRequest = 4 << 20

// ReasonTooLarge is that of a request with more than MaxRequest.
const ReasonTooLarge = "REQUEST_TOO_LARGE"

// Error becomes a status with ErrorInfo, to which the server adds the ids that the request names.
type Error struct {
	Code codes.Code
	// Reason is one that package server, or one below it, declares: a client may switch on it.
	Reason, Message string
	Metadata        map[string]string
}

func (e *Error) Error() string { return e.Message }

// New returns a refusal of a field of the request, which the message then begins with; "" is none.
func New(code codes.Code, reason, field, format string, args ...any) *Error {
	e := &Error{code, reason, fmt.Sprintf(format, args...), map[string]string{}}
	if field != "" {
		e.Message, e.Metadata["field"] = field+": "+e.Message, field
	}
	return e
}

// concerned is an error about ids that its request does not name, or names otherwise.
type concerned struct {
	error
	ids map[string]string
}

func (c *concerned) Unwrap() error { return c.error }

// Concerning takes keys and values in turn. It returns nil for nil.
func Concerning(err error, ids ...string) error {
	if err == nil {
		return nil
	}
	c := &concerned{err, map[string]string{}}
	for i := 0; i+1 < len(ids); i += 2 {
		c.ids[ids[i]] = ids[i+1]
	}
	return c
}

// Concerned are the ids that Concerning was told.
func Concerned(err error) map[string]string {
	if c, ok := errors.AsType[*concerned](err); ok {
		return c.ids
	}
	return nil
}
