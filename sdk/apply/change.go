// Package apply brings a directory of this host to what a sandbox has made of it, and lets nothing of the sandbox lead elsewhere.
package apply

import (
	"io/fs"
	"time"
)

// Kinds of changes.
const (
	Added   = "added"
	Changed = "changed"
	Removed = "removed"
)

// Mount is a copy-on-write mount: what the sandbox has at Target began as Source on the daemon's host.
type Mount struct {
	Target, Source string
	// ListedAt is when the daemon began to look, by its host's clock.
	ListedAt time.Time
}

// Change is one difference between what the host has and what the sandbox has in a copy-on-write mount.
type Change struct {
	Mount *Mount
	// Path is below the mount, any bytes but NUL; "." is the mount itself.
	Path string
	Kind string // Added, …
	// Type is what the sandbox has, or the host has of what was removed: Regular, Directory, Symlink, "fifo",
	// "socket" or "device"; OldType is what the host has where that is something else.
	Type, OldType string
	Size          uint64
	Mode          fs.FileMode // permissions, setuid, setgid and sticky; no type
	ModifiedAt    time.Time
	LinkTarget    string
	// Conflict: the host's file was changed since the sandbox was made.
	Conflict bool
	// Problem says why a change that is none of a removal cannot be taken.
	Problem string
}

// Kinds of files.
const (
	Regular   = "file"
	Directory = "directory"
	Symlink   = "symlink"
	Other     = "other"
)

// Left is a change that was not applied.
type Left struct {
	Change Change
	Reason string
}
