package hosttree

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// What an *Error is about; errors.Is finds it.
var (
	// ErrPattern: an exclude pattern is malformed.
	ErrPattern = errors.New("hosttree: malformed exclude pattern")
	// ErrTarget: the target is not a clean absolute path below the root.
	ErrTarget = errors.New("hosttree: unusable target")
	// ErrSourceSymlink: the source is a symbolic link, or its path goes through one.
	ErrSourceSymlink = errors.New("hosttree: source is a symbolic link")
	// ErrUnreadable: something in the source cannot be read, is gone, or was replaced while it was looked at.
	ErrUnreadable = errors.New("hosttree: unreadable")
	// ErrEntryKind: an entry is no file, directory or symbolic link.
	ErrEntryKind = errors.New("hosttree: kind of entry cannot be copied")
	// ErrLinkEscapes: a symbolic link in the source leads out of it.
	ErrLinkEscapes = errors.New("hosttree: symbolic link leads out of the source")
	// ErrTooLarge: the source has too many entries or nests too deep.
	ErrTooLarge = errors.New("hosttree: source is too large")
	// ErrChanged: files were written to while Stream read them. The tar is complete all the same.
	ErrChanged = errors.New("hosttree: files changed while they were copied")
)

// Error says why a source is not copied, or, with ErrChanged, not copied as one state.
type Error struct {
	// Kind is one of the errors of this package.
	Kind error
	// Pattern is the index of the exclude pattern that ErrPattern is about.
	Pattern int
	// Message names the path, what is wrong with it and what to do next.
	Message string
}

func (e *Error) Error() string { return e.Message }
func (e *Error) Unwrap() error { return e.Kind }

func refuse(kind error, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// unreadable is a refusal of path because of err, which ends with what to do.
func unreadable(path string, err error, hint string) *Error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	return refuse(ErrUnreadable, "%s cannot be read by the daemon: %v; %s", shown(path), err, hint)
}

// What to do about what cannot be read.
const (
	hintAccess = "give it access or exclude it"
	hintAgain  = "try again when nothing changes it"
)

// shownLimit bounds a path in a message, in bytes.
const shownLimit = 256

func shown(path string) string {
	if len(path) > shownLimit {
		return strconv.Quote(strings.ToValidUTF8(path[:shownLimit], "")) + "…"
	}
	return strconv.Quote(path)
}

func kindOf(mode fs.FileMode) string {
	switch mode.Type() {
	case fs.ModeSocket:
		return "a socket"
	case fs.ModeNamedPipe:
		return "a named pipe"
	case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
		return "a device"
	}
	return "something else"
}
