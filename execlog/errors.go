package execlog

import "errors"

var (
	// ErrNotRegular: what has the log's name is no file.
	ErrNotRegular = errors.New("execlog: not a regular file")
	// errNoNotices: the system has no notices of changes left to give.
	errNoNotices = errors.New("execlog: the system does not tell of changes to files")
)
