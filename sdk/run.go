package sdk

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
)

const defaultMaxOutput = 64 << 20

// RunResult is how a command ended and all that it wrote.
type RunResult struct {
	ExitCode int // 128+N where signal N ended the command
	Signal   int
	TimedOut bool // WithTimeout ended it, whatever the exit code says
	OOM      bool // the kernel killed it for want of memory
	Stdout   []byte
	Stderr   []byte
	Exec     Exec
}

// Run runs a command in a READY sandbox, waits for its end and returns its output. A non-zero exit
// code is no error. Beside *ExecFailedError and ErrOutputLimit the result holds what there is. The
// context's end does not end the command: CancelExec with result.Exec.ID does.
func (c *Client) Run(ctx context.Context, sandboxID string, command []string, opts ...ExecOption) (RunResult, error) {
	call := execCall{maxOutput: defaultMaxOutput}
	for _, opt := range opts {
		opt.exec(&call)
	}
	exec, err := c.createExec(ctx, sandboxID, command, call)
	if err != nil {
		return RunResult{}, err
	}
	exec, err = c.wait(ctx, exec, call.waiting)
	result := RunResult{ExitCode: exec.ExitCode, Signal: exec.Signal, TimedOut: exec.TimedOut, OOM: exec.OOM, Exec: exec}
	if !exec.Ended() {
		return result, err
	}
	var failure error
	if result.Stdout, failure = readLog(exec.StdoutPath, call.maxOutput); err == nil {
		err = failure
	}
	if result.Stderr, failure = readLog(exec.StderrPath, call.maxOutput); err == nil {
		err = failure
	}
	return result, err
}

// readLog returns the file's bytes up to the limit, and ErrOutputLimit if there are more.
func readLog(path string, limit int64) ([]byte, error) {
	file, err := openLog(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit))
	if err != nil {
		return data, err
	}
	if n, _ := file.Read(make([]byte, 1)); n > 0 {
		return data, fmt.Errorf("%w: %s holds more than %d bytes", ErrOutputLimit, path, limit)
	}
	return data, nil
}

// openLog opens an output file. The sandbox can write to its directory, so whatever is not a regular
// file is refused, and a link is never followed.
func openLog(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLogFile, err)
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrLogFile, path)
	}
	return file, nil
}
