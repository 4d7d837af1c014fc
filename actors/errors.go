package actors

import "errors"

var (
	// ErrNoLease: nobody can hold the sandbox, which needs no holder.
	ErrNoLease = errors.New("actors: the sandbox has no lease")
	// ErrNotFound: there is no such sandbox, or its history was purged.
	ErrNotFound = errors.New("actors: no such sandbox")
	// ErrExecNotFound: there is no such exec, or its history was purged.
	ErrExecNotFound = errors.New("actors: no such exec")
	// ErrSandboxIDTaken and ErrExecIDTaken: the id was used before, deleted or not.
	ErrSandboxIDTaken = errors.New("actors: sandbox id was used before")
	ErrExecIDTaken    = errors.New("actors: exec id was used before")
	// ErrOverlap: one of two sandboxes could exchange what the other one mounts.
	ErrOverlap = errors.New("actors: mounts overlap")
	// ErrTooMany: there are as many sandboxes as the operator allows.
	ErrTooMany = errors.New("actors: too many sandboxes")
	// ErrShuttingDown: the daemon is ending and takes no more requests.
	ErrShuttingDown = errors.New("actors: shutting down")
)
