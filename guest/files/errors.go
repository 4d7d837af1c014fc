package files

import (
	"errors"
	"fmt"
)

// What a Refusal is of.
var (
	// ErrPath: no path at all.
	ErrPath = errors.New("files: not a path")
	// ErrEscapes: a name in a tar stream leads out of the directory that it is unpacked in.
	ErrEscapes = errors.New("files: leads out of the directory")
	// ErrReserved: the path belongs to the sandbox itself, or to the kernel.
	ErrReserved = errors.New("files: not for callers")
	// ErrNotFound: nothing is there.
	ErrNotFound = errors.New("files: not found")
	// ErrNotDirectory: it has to be a directory, and is not.
	ErrNotDirectory = errors.New("files: not a directory")
	// ErrIsDirectory: it has to be a file, and is a directory.
	ErrIsDirectory = errors.New("files: is a directory")
	// ErrExists: something is there, where nothing may be.
	ErrExists = errors.New("files: exists")
	// ErrDenied: the user has no right to it.
	ErrDenied = errors.New("files: permission denied")
	// ErrNoSpace: the disk that it lies on is full.
	ErrNoSpace = errors.New("files: no space left")
	// ErrNotEmpty: a directory that may be removed only recursively.
	ErrNotEmpty = errors.New("files: directory is not empty")
	// ErrReadOnly: it can be read and not written.
	ErrReadOnly = errors.New("files: read-only")
	// ErrMounted: something is mounted there, or below.
	ErrMounted = errors.New("files: mount point")
	// ErrMemory: only processes of the sandbox see what is there.
	ErrMemory = errors.New("files: in the sandbox's memory")
	// ErrEntry: a tar stream has something that is never unpacked.
	ErrEntry = errors.New("files: entry refused")
	// ErrTar: it is no tar stream, or ends too early.
	ErrTar = errors.New("files: not a tar stream")
	// ErrTooLarge: it is more than may be carried at once.
	ErrTooLarge = errors.New("files: too large")
	// ErrTooDeep: a tree has directories whose content has no name that is short enough.
	ErrTooDeep = errors.New("files: too deep")
	// ErrOwner: the image does not know the user or group.
	ErrOwner = errors.New("files: unknown owner")
	// ErrRefused: the engine or the sandbox's kernel says no, for another reason.
	ErrRefused = errors.New("files: refused")
	// ErrNotRunning: the sandbox ended meanwhile.
	ErrNotRunning = errors.New("files: sandbox does not run")
)

// Refusal is an error for people: Kind is one of the errors above.
type Refusal struct {
	Kind    error
	Message string
}

func (r *Refusal) Error() string { return r.Message }
func (r *Refusal) Unwrap() error { return r.Kind }

// Refuse returns a *Refusal.
func Refuse(kind error, format string, args ...any) error {
	return &Refusal{kind, fmt.Sprintf(format, args...)}
}
