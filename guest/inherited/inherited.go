// Package inherited knows what the process was given before Go's own initialization changed it. It imports nothing but
// syscall, so that it is initialized before package os, which raises the limit of open files.
package inherited

import "syscall"

// Files is the limit of open files that commands are to have.
var Files syscall.Rlimit

// Known tells whether Files could be read.
var Known bool

func init() { Known = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &Files) == nil }
