package runtime

import (
	"context"
	"io"
)

// Stdin is one client's way to a command's standard input, or to the keys of its terminal. It is used by one goroutine
// but for Close, which any may call.
//
// Write blocks while the command was not started yet, is paused, or does not read. The count that it returns is exact:
// so many bytes are in the input, and no others, whatever the error. It returns ErrStdinClosed once the input was closed
// for good or the command has ended, and os.ErrClosed after Close.
//
// Close lets a blocked Write return and does not end the input.
type Stdin interface{ io.WriteCloser }

// Input reaches the standard input of commands that were started with stdin or tty.
type Input interface {
	// OpenStdin returns a way to the command's input, one of any number at a time; a Write of up to 4,096 bytes
	// (Linux's PIPE_BUF) stays in one piece among theirs. It may be called as soon as the exec was accepted. It fails with ErrStdinClosed
	// where Write would, or when the command was started without one.
	OpenStdin(sandboxID, execID string) (Stdin, error)
	// CloseStdin ends the command's input for good, over a restart of the daemon too, once what is in it has been read; at a
	// terminal, end of file is typed. The writers of every client end with ErrStdinClosed. A second call does nothing
	// more, nor does one for a command that has ended or has no input. It may come before the command was started.
	CloseStdin(ctx context.Context, sandboxID, execID string) error
	// ResizeExec sets the size of the command's terminal, in characters, and has the command told by SIGWINCH. It fails with
	// ErrExecTerminal, ErrExecNotStarted, ErrNoTerminal or ErrOutcomeUnknown, after which it may be called again.
	ResizeExec(ctx context.Context, sandboxID, execID string, rows, columns uint16) error
}
