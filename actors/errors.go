package actors

import "errors"

var (
	// ErrNoLease: nobody can hold the sandbox, which needs no holder.
	ErrNoLease = errors.New("actors: the sandbox has no lease")
	// ErrNotFound: there is no such sandbox, or its history was purged.
	ErrNotFound = errors.New("actors: no such sandbox")
	// ErrExecNotFound: there is no such exec, or its history was purged.
	ErrExecNotFound = errors.New("actors: no such exec")
	// ErrExecTerminal: the exec ended before.
	ErrExecTerminal = errors.New("actors: exec has ended")
	// ErrExecNotStarted: the exec was accepted, and its command does not run yet.
	ErrExecNotStarted = errors.New("actors: exec was not started yet")
	// ErrStdinClosed: the exec's input was closed for good, or the exec has ended, or it was started without one.
	ErrStdinClosed = errors.New("actors: exec has no open standard input")
	// ErrNoTerminal: the exec was started without a terminal.
	ErrNoTerminal = errors.New("actors: exec has no terminal")
	// ErrSandboxIDTaken and ErrExecIDTaken: the id was used before, deleted or not.
	ErrSandboxIDTaken = errors.New("actors: sandbox id was used before")
	ErrExecIDTaken    = errors.New("actors: exec id was used before")
	// ErrOverlap: one of two sandboxes could exchange what the other one mounts.
	ErrOverlap = errors.New("actors: mounts overlap")
	// ErrTooMany: there are as many sandboxes as the operator allows.
	ErrTooMany = errors.New("actors: too many sandboxes")
	// ErrConflict: the runtime holds an object under a name that the sandbox needs, and it is not ours.
	ErrConflict = errors.New("actors: name is taken by an object that is not ours")
	// ErrUnreachable: the runtime's engine does not answer. What was asked of it may or may not have happened, and
	// may be asked again.
	ErrUnreachable = errors.New("actors: docker cannot be reached")
	// ErrOutcomeUnknown: the request may or may not have been carried out; read the sandbox's state.
	ErrOutcomeUnknown = errors.New("actors: outcome unknown")
	// ErrShuttingDown: the daemon is ending and takes no more requests.
	ErrShuttingDown = errors.New("actors: shutting down")
	// ErrSnapshotNotFound: there is no such snapshot.
	ErrSnapshotNotFound = errors.New("actors: no such snapshot")
	// ErrSnapshotIDTaken: there is a snapshot with this id, or another image under the name that it needs.
	ErrSnapshotIDTaken = errors.New("actors: snapshot id is in use")
	// ErrSnapshotInUse: the snapshot is needed, or the engine says so.
	ErrSnapshotInUse = errors.New("actors: snapshot is in use")
	// ErrSnapshotTooLarge: the files of the sandbox are more than a snapshot may have, or than there is room for.
	ErrSnapshotTooLarge = errors.New("actors: too large for a snapshot")
	// ErrNothingToKeep: the sandbox has no primary, or the image that it was made from is gone.
	ErrNothingToKeep = errors.New("actors: nothing to make a snapshot of")
)
