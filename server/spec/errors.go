package spec

import "fmt"

// Error is one refused input. Reason is one of the Reason constants, Field names the input in proto
// path form ("create_spec.mounts[2].source"), or is "config_yaml" for a document that cannot be read.
// Message says what is wrong, shows the value and ends with what to do next. Every error that this
// package returns is an *Error.
type Error struct {
	Reason   string
	Field    string
	Message  string
	Metadata map[string]string
}

func (e *Error) Error() string {
	if e.Field == "" {
		return "spec: " + e.Message
	}
	return "spec: " + e.Field + ": " + e.Message
}

func refuse(reason, field, format string, args ...any) *Error {
	return &Error{Reason: reason, Field: field, Message: fmt.Sprintf(format, args...)}
}
