package persist

import "errors"

var (
	// ErrLocked: another process has the database open.
	ErrLocked = errors.New("persist: database is in use")
	// ErrCorrupt: the file is not a database that this version can read.
	ErrCorrupt = errors.New("persist: database is damaged")
	// ErrClosed: Close was called; nothing was recorded.
	ErrClosed = errors.New("persist: database is closed")
	// ErrNoSpace: the disk is full, or read-only; nothing was recorded and the same call may succeed later.
	ErrNoSpace = errors.New("persist: the database takes no writes")

	// ErrMismatch: the database is not the one that its witness saw last; see Mismatch.
	ErrMismatch = errors.New("persist: this is not the database that was here")
	// ErrWitness: the instance file does not hold what it should.
	ErrWitness = errors.New("persist: the instance file is damaged")
	// ErrMoved: the database's file is not where it was, and changes are refused until it is.
	ErrMoved = errors.New("persist: the database's file was taken away")

	// ErrSandboxIDTaken and ErrExecIDTaken: the id was used before, in this or an earlier life.
	ErrSandboxIDTaken = errors.New("persist: sandbox id was used before")
	ErrExecIDTaken    = errors.New("persist: exec id was used before")
	// ErrSnapshotPending: another sandbox has announced a snapshot with this id that has not ended.
	ErrSnapshotPending = errors.New("persist: snapshot id is in use")
	// ErrPlaceTaken: another sandbox took the place.
	ErrPlaceTaken = errors.New("persist: place is taken")
	// ErrConflict: the log has moved on since the caller read it; nothing was recorded.
	ErrConflict = errors.New("persist: sequence conflict")

	// ErrNoSandbox and ErrNoExec: there is no such id, or its history was purged.
	ErrNoSandbox = errors.New("persist: no such sandbox")
	ErrNoExec    = errors.New("persist: no such exec")
)
