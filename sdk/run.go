package sdk

import (
	"context"
	"fmt"
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
	if call.progress != nil { // of which the output does not tell
		if last, err := c.wait(ctx, exec, call.waiting); !last.Ended() {
			return RunResult{Exec: last}, err
		}
	}
	stdout, stderr := bounded{most: call.maxOutput}, bounded{most: call.maxOutput}
	exec, err = c.FollowLogs(ctx, exec, &stdout, &stderr)
	result := RunResult{ExitCode: exec.ExitCode, Signal: exec.Signal, TimedOut: exec.TimedOut, OOM: exec.OOM,
		Stdout: stdout.data, Stderr: stderr.data, Exec: exec}
	if err == nil && (stdout.more || stderr.more) {
		err = fmt.Errorf("%w: exec %s wrote more than %d bytes", ErrOutputLimit, exec.ID, call.maxOutput)
	}
	return result, err
}

// bounded keeps the first bytes of what is written.
type bounded struct {
	data []byte
	most int64
	more bool
}

func (b *bounded) Write(p []byte) (int, error) {
	kept := p[:min(int64(len(p)), b.most-int64(len(b.data)))]
	b.data, b.more = append(b.data, kept...), b.more || len(kept) < len(p)
	return len(p), nil
}
