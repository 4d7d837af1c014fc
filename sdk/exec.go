package sdk

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// ExecState is where an exec is in its life.
type ExecState string

// A daemon newer than this package may know others.
const (
	ExecRunning   ExecState = "RUNNING"
	ExecFinished  ExecState = "FINISHED"  // by itself: ExitCode and Signal tell how
	ExecFailed    ExecState = "FAILED"    // could not be run, or its result cannot be known
	ExecCancelled ExecState = "CANCELLED" // by CancelExec, or by a stop or deletion of the sandbox
)

// Exec is one command in a sandbox, as it was when the daemon was asked.
type Exec struct {
	ID        string
	SandboxID string
	State     ExecState
	Command   []string
	Cwd       string
	Env       map[string]string
	ExitCode  int // 128+N where signal N ended the command
	Signal    int
	// TimedOut: its own timeout ended it, whatever the exit code says. OOM: the kernel killed it for want of memory.
	TimedOut  bool
	OOM       bool
	StartedAt time.Time
	EndedAt   time.Time
	// Files on this host that hold the output; they grow while the command runs.
	StdoutPath string
	StderrPath string
	// LastEventSequence is the newest event's of the sandbox.
	LastEventSequence uint64
	// Stdin: it was started WithStdin; Terminal: WithTerminal.
	Stdin    bool
	Terminal bool
	// Set when FAILED.
	ErrorCode    string
	ErrorMessage string
}

// Ended reports whether the exec's state is final.
func (e Exec) Ended() bool {
	return e.State == ExecFinished || e.State == ExecFailed || e.State == ExecCancelled
}

// Err returns an *ExecFailedError if the exec failed or was cancelled, else nil: a non-zero exit
// code is a result.
func (e Exec) Err() error {
	if e.State != ExecFailed && e.State != ExecCancelled {
		return nil
	}
	return &ExecFailedError{ID: e.ID, State: e.State, Code: e.ErrorCode, Message: e.ErrorMessage}
}

// CreateExec starts a command, without a shell, in a READY sandbox. It returns when the exec is
// accepted; with WithWait(true) when it has ended, beside Err's error. Whenever it was accepted, the
// value returned has its ID.
func (c *Client) CreateExec(ctx context.Context, sandboxID string, command []string, opts ...ExecOption) (Exec, error) {
	call := execCall{}
	for _, opt := range opts {
		opt.exec(&call)
	}
	exec, err := c.createExec(ctx, sandboxID, command, call)
	if err != nil || !call.wait {
		return exec, err
	}
	return c.wait(ctx, exec, call.waiting)
}

func (c *Client) createExec(ctx context.Context, sandboxID string, command []string, call execCall) (Exec, error) {
	request := &agboxv1.CreateExecRequest{
		SandboxId: sandboxID, Command: command, Cwd: call.cwd, EnvOverrides: call.env, ExecId: call.id, User: call.user,
		MaxOutputBytes: call.maxLog, Stdin: call.stdin, Tty: call.terminal,
	}
	if call.timeout > 0 {
		request.Timeout = durationpb.New(call.timeout)
	}
	resp, err := c.raw.CreateExec(ctx, request)
	if err != nil {
		return Exec{}, err
	}
	return Exec{
		ID: resp.GetExecId(), SandboxID: sandboxID, State: ExecRunning, Command: command, Cwd: call.cwd, Env: call.env,
		StdoutPath: resp.GetStdoutLogPath(), StderrPath: resp.GetStderrLogPath(),
		Stdin: call.stdin, Terminal: call.terminal != nil,
	}, nil
}

// WaitExec waits until the exec, known from CreateExec, GetExec or ListActiveExecs, has ended, and
// returns it beside Err's error.
func (c *Client) WaitExec(ctx context.Context, exec Exec) (Exec, error) {
	return c.wait(ctx, exec, waiting{})
}

// wait returns the exec as it ended, or as it was last seen beside what kept the end from being known.
func (c *Client) wait(ctx context.Context, exec Exec, w waiting) (Exec, error) {
	ended, err := c.awaitExec(ctx, exec.ID, w)
	if ended.ID == "" {
		return exec, err
	}
	if err == nil {
		err = ended.Err()
	}
	return ended, err
}

// GetExec returns the exec as it is.
func (c *Client) GetExec(ctx context.Context, id string) (Exec, error) {
	resp, err := c.raw.GetExec(ctx, &agboxv1.GetExecRequest{ExecId: id})
	if err != nil {
		return Exec{}, err
	}
	return execOf(resp.GetExec()), nil
}

// CancelExec ends a running exec, the whole process tree of it, and waits until it has ended. One
// that had ended before is refused with ErrExecAlreadyTerminal.
func (c *Client) CancelExec(ctx context.Context, id string, opts ...WaitOption) error {
	if _, err := c.raw.CancelExec(ctx, &agboxv1.CancelExecRequest{ExecId: id}); err != nil {
		return err
	}
	w := waits(opts)
	if !w.wait {
		return nil
	}
	_, err := c.awaitExec(ctx, id, w)
	if deleted := (*SandboxDeletedError)(nil); errors.As(err, &deleted) {
		return nil
	}
	return err
}

// ListActiveExecs returns the running execs of one sandbox, or of all where the id is empty.
func (c *Client) ListActiveExecs(ctx context.Context, sandboxID string) ([]Exec, error) {
	req := &agboxv1.ListActiveExecsRequest{}
	if sandboxID != "" {
		req.SandboxId = &sandboxID
	}
	resp, err := c.raw.ListActiveExecs(ctx, req)
	if err != nil {
		return nil, err
	}
	return all(resp.GetExecs(), execOf), nil
}

// apply takes over what an event about the exec tells.
func (e *Exec) apply(event Event) {
	switch event.Type {
	case EventExecFinished:
		e.State = ExecFinished
	case EventExecFailed:
		e.State = ExecFailed
	case EventExecCancelled:
		e.State = ExecCancelled
	default:
		return
	}
	e.ExitCode, e.Signal = event.ExitCode, event.Signal
	e.TimedOut, e.OOM = event.TimedOut, event.OOM
	e.ErrorCode, e.ErrorMessage = event.ErrorCode, event.ErrorMessage
	e.EndedAt = event.EndedAt
	if !event.StartedAt.IsZero() {
		e.StartedAt = event.StartedAt
	}
}

func execOf(p *agboxv1.ExecStatus) Exec {
	return Exec{
		ID:                p.GetExecId(),
		SandboxID:         p.GetSandboxId(),
		State:             execStateOf(p.GetState()),
		Command:           p.GetCommand(),
		Cwd:               p.GetCwd(),
		Env:               p.GetEnvOverrides(),
		ExitCode:          int(p.GetExitCode()),
		Signal:            int(p.GetSignal()),
		TimedOut:          p.GetResources().GetTimedOut(),
		OOM:               p.GetResources().GetOom(),
		StartedAt:         timeOf(p.GetStartedAt()),
		EndedAt:           timeOf(p.GetEndedAt()),
		StdoutPath:        p.GetStdoutLogPath(),
		StderrPath:        p.GetStderrLogPath(),
		LastEventSequence: p.GetLastEventSequence(),
		Stdin:             p.GetStdin(),
		Terminal:          p.GetTty(),
		ErrorCode:         p.GetErrorCode(),
		ErrorMessage:      p.GetError(),
	}
}

// execStateOf returns "" for an event that concerns no exec.
func execStateOf(s agboxv1.ExecState) ExecState {
	if s == agboxv1.ExecState_EXEC_STATE_UNSPECIFIED {
		return ""
	}
	return ExecState(strings.TrimPrefix(s.String(), "EXEC_STATE_"))
}
