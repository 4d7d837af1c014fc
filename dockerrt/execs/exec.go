// Package execs runs commands in sandboxes and keeps their input, over links: it asks no engine.
package execs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/layout"
	"github.com/agbox-dev/agbox/dockerrt/links"
	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Execs implements runtime.Execs and runtime.Input.
type Execs struct {
	links  *links.Links
	layout layout.Layout
	// grace is how long processes have from TERM to KILL when their exec is cancelled.
	grace  time.Duration
	log    *slog.Logger
	inputs inputs
	pids   runtime.Pids
}

// New returns the commands of the sandboxes that links leads to.
func New(links *links.Links, layout layout.Layout, grace time.Duration, log *slog.Logger) *Execs {
	return &Execs{links: links, layout: layout, grace: grace, log: log}
}

// Exec implements runtime.Runtime.
func (es *Execs) Exec(ctx context.Context, request *agboxv1.CreateExecRequest) (runtime.ExecResult, error) {
	sandboxID, execID := request.SandboxId, request.ExecId
	defer es.pids.Forget(execID)
	// A command for which the file of its result was made may run: what this process lacks, such as a descriptor, is no end of it.
	asked := es.layout.Recorded(sandboxID, execID)
	result, err := es.exec(ctx, request, asked)
	wait := backoff.ExponentialBackOff{InitialInterval: engine.TryDelay, MaxInterval: lastAttempt,
		RandomizationFactor: backoff.DefaultRandomizationFactor, Multiplier: backoff.DefaultMultiplier}
	for asked && err != nil && ctx.Err() == nil && !errors.Is(err, link.ErrClosed) {
		delay := wait.NextBackOff()
		es.log.Warn("a command that may run cannot be attached to yet", "sandbox_id", sandboxID, "exec_id", execID, "again_in", delay, "error", err)
		select {
		case <-time.After(delay):
			result, err = es.exec(ctx, request, asked)
		case <-ctx.Done():
		}
	}
	if err == nil {
		ended := outcome(result)
		ended.PID = es.pids.Of(execID)
		return ended, nil
	}
	if recorded, found := es.ExecRecord(sandboxID, execID); found {
		return recorded, nil
	}
	if errors.Is(err, link.ErrClosed) {
		// The sandbox is being stopped or removed, and whoever does that tells the end of its commands.
		<-ctx.Done()
		return runtime.ExecResult{}, ctx.Err()
	}
	return runtime.ExecResult{}, err
}

// lastAttempt is the longest time between two attempts to attach to a command.
const lastAttempt = 5 * time.Second

// exec tries once. asked: the command may have been started, and have ended, before.
func (es *Execs) exec(ctx context.Context, request *agboxv1.CreateExecRequest, asked bool) (protocol.Result, error) {
	sandboxID, execID := request.SandboxId, request.ExecId
	in := es.inputs.use(es.layout.Stdin(sandboxID, execID))
	defer in.leave()
	if asked {
		if recorded, found := es.record(sandboxID, execID); found {
			return recorded, nil
		}
	}
	guest, err := es.links.Booted(sandboxID)
	if errors.Is(err, link.ErrClosed) {
		return protocol.Result{}, err
	} else if err != nil {
		return protocol.Result{}, notStarted(err)
	}
	stdout, stderr, err := es.layout.OpenOutputs(sandboxID, execID)
	if err != nil {
		return protocol.Result{}, notStarted(err)
	}
	index, err := es.openIndex(request)
	if err != nil {
		stdout.Close()
		stderr.Close()
		return protocol.Result{}, notStarted(err)
	}
	record, input, err := es.openInput(in, request)
	if err != nil {
		stdout.Close()
		stderr.Close()
		index.Close()
		return protocol.Result{}, notStarted(err)
	}
	release := func() {
		stdout.Close()
		stderr.Close()
		index.Close()
		record.Close()
		for _, end := range input {
			end.Close() // also of none
		}
	}
	defer release()
	terminal := size(request.Tty)
	if input[0] == nil && (request.Stdin || terminal != nil) {
		if err := guest.CloseStdin(execID); err != nil {
			return protocol.Result{}, err
		}
	}
	return guest.Exec(ctx, link.ExecSpec{
		ID:        execID,
		Argv:      request.Command,
		Env:       engine.Environ(request.EnvOverrides),
		Cwd:       request.Cwd,
		User:      request.User,
		Timeout:   request.Timeout.AsDuration(),
		MaxOutput: request.MaxOutputBytes,
		Grace:     es.grace,
		Files:     [3]*os.File{stdout, stderr, record},
		Index:     index,
		Stdin:     input,
		Terminal:  terminal,
		FromHome:  request.CwdFromHome,
		OnStarted: func(pid int) {
			release()
			in.begin()
			if execID != runtime.CommandID {
				es.pids.Set(execID, pid)
			}
		},
	})
}

// openInput opens the file for the result and, after the FIFO was made, both ends of that, which are nil when the command
// has no input or it was closed for good.
func (es *Execs) openInput(in *input, request *agboxv1.CreateExecRequest) (record *os.File, ends [2]*os.File, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	wanted := request.Stdin || request.Tty != nil
	if wanted {
		err = in.make(es.layout.Recorded(request.SandboxId, request.ExecId))
	}
	if err == nil {
		record, err = es.layout.OpenRecord(request.SandboxId, request.ExecId)
	}
	if err != nil {
		return nil, ends, err
	}
	if !wanted {
		return record, ends, nil
	}
	if ends, err = in.ends(); err != nil {
		return nil, ends, errors.Join(fmt.Errorf("cannot open the input: %w", err), record.Close())
	}
	return record, ends, nil
}

func size(tty *agboxv1.TerminalSize) *protocol.Size {
	if tty == nil {
		return nil
	}
	return &protocol.Size{Rows: uint16(tty.Rows), Columns: uint16(tty.Columns)}
}

func notStarted(err error) error {
	return engine.Coded(runtime.CodeExecStartFailed, "the command was not started: %w", err)
}

func (es *Execs) openIndex(request *agboxv1.CreateExecRequest) (*os.File, error) {
	if request.Tty != nil {
		return nil, nil
	}
	return es.layout.OpenIndex(request.SandboxId, request.ExecId)
}

// outcome is what agbox-init's result means to callers.
func outcome(r protocol.Result) runtime.ExecResult {
	result := runtime.ExecResult{
		State:    agboxv1.ExecState_EXEC_STATE_FINISHED,
		ExitCode: int32(r.ExitCode), Signal: int32(r.Signal),
		Code: r.ErrorCode, Message: r.ErrorMessage,
		Started: r.Started, Ended: r.Ended, Resources: resources(r),
	}
	switch {
	case r.ErrorCode == protocol.CodeStopping:
		result.State = agboxv1.ExecState_EXEC_STATE_CANCELLED
	case r.ErrorCode != "":
		result.State = agboxv1.ExecState_EXEC_STATE_FAILED
	case r.Cancelled && !r.TimedOut:
		result.State = agboxv1.ExecState_EXEC_STATE_CANCELLED
	case r.TimedOut && result.ExitCode == 0: // a handler of TERM may have ended it so
		result.ExitCode = exitTimedOut
	}
	return result
}

// exitTimedOut is the exit code of timeout(1), for what a timeout ended and that does not say so itself.
const exitTimedOut = 124

func resources(r protocol.Result) *agboxv1.ExecResources {
	if r.Started.IsZero() || r.ErrorCode != "" {
		return nil
	}
	return &agboxv1.ExecResources{
		UserTime: durationpb.New(r.UserTime), SystemTime: durationpb.New(r.SystemTime), MaxRssBytes: uint64(r.MaxRSS),
		StdoutBytes: r.StdoutBytes, StderrBytes: r.StderrBytes, OutputDroppedBytes: r.OutputMissing(),
		TimedOut: r.TimedOut, Oom: r.OOM,
	}
}

// record reads the result that is on disk, and tries again for some seconds where this process cannot.
func (es *Execs) record(sandboxID, execID string) (protocol.Result, bool) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval = engine.TryDelay
	data, err := backoff.Retry(context.Background(), func() ([]byte, error) {
		data, err := os.ReadFile(es.layout.Result(sandboxID, execID))
		if errors.Is(err, fs.ErrNotExist) {
			err = backoff.Permanent(err)
		}
		return data, err
	}, backoff.WithMaxTries(engine.Tries), backoff.WithBackOff(wait))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			es.log.Error("the result of a command cannot be read", "sandbox_id", sandboxID, "exec_id", execID, "error", err)
		}
		return protocol.Result{}, false
	}
	return protocol.ParseRecord(data)
}

// ExecRecord implements runtime.Runtime.
func (es *Execs) ExecRecord(sandboxID, execID string) (runtime.ExecResult, bool) {
	result, found := es.record(sandboxID, execID)
	return outcome(result), found
}

// ExecRecorded implements runtime.Runtime.
func (es *Execs) ExecRecorded(sandboxID, execID string) {
	guest := es.links.Find(sandboxID)
	if guest != nil {
		guest.Ack(execID)
	}
	in := es.inputs.use(es.layout.Stdin(sandboxID, execID))
	defer in.leave()
	if err := in.end(); err != nil {
		es.log.Error("the input of an exec that has ended stays behind", "sandbox_id", sandboxID, "exec_id", execID, "error", err)
	}
}

// CancelExec implements runtime.Runtime.
func (es *Execs) CancelExec(ctx context.Context, sandboxID, execID string) error {
	guest, err := es.links.Booted(sandboxID)
	if err != nil {
		return err
	}
	return guest.Cancel(ctx, execID, es.grace)
}

// SignalExec implements runtime.Runtime.
func (es *Execs) SignalExec(ctx context.Context, sandboxID, execID string, signal int) error {
	guest, err := es.links.Booted(sandboxID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, engine.ReadTimeout)
	defer cancel()
	return notRunning(guest.Signal(ctx, execID, signal), execID)
}

// notRunning puts agbox-init's answer on a command that it does not have into the actors' words.
func notRunning(err error, execID string) error {
	switch {
	case errors.Is(err, link.ErrExecEnded):
		return fmt.Errorf("%w: %s", runtime.ErrExecTerminal, execID)
	case errors.Is(err, link.ErrExecUnknown):
		return fmt.Errorf("%w: %s was not started yet", runtime.ErrExecNotStarted, execID)
	case errors.Is(err, link.ErrSignalUnknown):
		return fmt.Errorf("%w: %w", runtime.ErrOutcomeUnknown, err)
	}
	return err
}

// ExecPID implements runtime.Runtime.
func (es *Execs) ExecPID(execID string) int { return es.pids.Of(execID) }

// AwaitExec implements runtime.Runtime.
func (es *Execs) AwaitExec(ctx context.Context, execID string) (int, error) {
	return es.pids.Await(ctx, execID)
}

// ExecLogs implements runtime.Runtime.
func (es *Execs) ExecLogs(sandboxID, execID string) (stdout, stderr string) {
	return es.layout.Log(sandboxID, execID, "stdout"), es.layout.Log(sandboxID, execID, "stderr")
}

// ExecIndex returns the host path of the file that tells the order of the exec's output (see protocol.IndexDecoder). Of a
// command with a terminal, and of one that began under an agbox-init of before it, there is none, or an empty one.
func (es *Execs) ExecIndex(sandboxID, execID string) string {
	return es.layout.Index(sandboxID, execID)
}

// ExecIDs implements runtime.Runtime.
func (es *Execs) ExecIDs(sandboxID string) ([]string, error) { return es.layout.ExecIDs(sandboxID) }

// ForgetExec implements runtime.Runtime.
func (es *Execs) ForgetExec(sandboxID, execID string) error {
	return es.layout.RemoveExec(sandboxID, execID)
}
