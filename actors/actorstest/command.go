package actorstest

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/guest/protocol"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Command is an exec, or a sandbox's own command, while Runtime.Play plays it.
type Command struct {
	Request *agboxv1.CreateExecRequest
	// Env are the sandbox's variables with the exec's own on top.
	Env map[string]string
	// Stdin ends after CloseStdin, and at once where the exec has no input.
	Stdin          *os.File
	Stdout, Stderr io.Writer
	// Signals are what SignalExec sends.
	Signals <-chan syscall.Signal
}

// played is a command that goes on while nobody asks for it, as in a real sandbox over a restart of the daemon.
type played struct {
	sandboxID string
	cancel    context.CancelCauseFunc
	signals   chan syscall.Signal
	done      chan struct{}
	result    runtime.ExecResult // once done is closed
}

func (p *played) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

var (
	errCancelled = errors.New("actorstest: the command was cancelled")
	errTimedOut  = errors.New("actorstest: the command ran into its timeout")
)

// play starts a command, or finds the one that was started before. The runtime is locked.
func (r *Runtime) play(request *agboxv1.CreateExecRequest) *played {
	key := request.SandboxId + "/" + request.ExecId
	if p := r.played[key]; p != nil {
		return p
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	p := &played{sandboxID: request.SandboxId, cancel: cancel, signals: make(chan syscall.Signal, 16), done: make(chan struct{})}
	if r.played == nil {
		r.played = map[string]*played{}
	}
	r.played[key] = p
	env := map[string]string{}
	for _, source := range []map[string]string{r.specs[request.SandboxId].GetEnvs(), request.EnvOverrides} {
		for name, value := range source {
			env[name] = value
		}
	}
	c := &Command{Request: proto.CloneOf(request), Env: env, Signals: p.signals}
	r.commands.Go(func() {
		defer close(p.done)
		defer cancel(nil)
		p.result = r.perform(ctx, c)
	})
	return p
}

// perform gives a command its input and output, and makes a result of what ended it.
func (r *Runtime) perform(ctx context.Context, c *Command) (result runtime.ExecResult) {
	limit := ctx
	if timeout := c.Request.Timeout.AsDuration(); timeout > 0 {
		var stop context.CancelFunc
		limit, stop = context.WithTimeoutCause(ctx, timeout, errTimedOut)
		defer stop()
	}
	started := time.Now()
	out, err := r.openOutput(c.Request.SandboxId, c.Request.ExecId)
	if err == nil {
		defer out.close()
		c.Stdout, c.Stderr = &stream{out, out.files[0], false}, &stream{out, out.files[1], true}
		c.Stdin, err = r.Stdin(c.Request.ExecId)
	}
	if err == nil && !c.Request.Stdin && c.Request.Tty == nil {
		err = r.CloseStdin(ctx, c.Request.SandboxId, c.Request.ExecId)
	}
	if err != nil {
		return runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FAILED, Code: "EXEC_START_FAILED", Message: err.Error()}
	}
	defer r.pids.Forget(c.Request.ExecId)
	result = r.Play(limit, c)
	_ = r.EndStdin(c.Request.ExecId)
	result.Started, result.Ended = started, time.Now()
	switch context.Cause(limit) {
	case errCancelled:
		result.State = agboxv1.ExecState_EXEC_STATE_CANCELLED
	case errTimedOut:
		result.Resources = &agboxv1.ExecResources{TimedOut: true}
	}
	return result
}

// endCommands ends what is played in a sandbox, in all for "", and returns when it has ended.
func (r *Runtime) endCommands(sandboxID string) {
	var ending []*played
	r.mu.Lock()
	for _, p := range r.played {
		if sandboxID == "" || p.sandboxID == sandboxID {
			ending = append(ending, p)
		}
	}
	r.mu.Unlock()
	for _, p := range ending {
		p.cancel(errCancelled)
	}
	for _, p := range ending {
		<-p.done
	}
}

// Close ends all commands that are played, and waits for them.
func (r *Runtime) Close() {
	r.endCommands("")
	r.commands.Wait()
}

// output is the files of one command. The index tells what came after what.
type output struct {
	mu    sync.Mutex
	files [2]*os.File
	index *os.File
	last  int64 // microseconds
}

func (r *Runtime) openOutput(sandboxID, execID string) (*output, error) {
	stdout, stderr := r.ExecLogs(sandboxID, execID)
	out := &output{}
	for i, path := range []string{stdout, stderr, r.ExecIndex(sandboxID, execID)} {
		file, err := os.Create(path)
		if err != nil {
			out.close()
			return nil, err
		}
		if i < 2 {
			out.files[i] = file
		} else {
			out.index = file
		}
	}
	_, err := out.index.Write([]byte{protocol.IndexVersion})
	return out, err
}

func (out *output) close() {
	for _, file := range []*os.File{out.files[0], out.files[1], out.index} {
		_ = file.Close() // nil too
	}
}

type stream struct {
	out    *output
	file   *os.File
	stderr bool
}

func (s *stream) Write(p []byte) (int, error) {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	n, err := s.file.Write(p)
	if n > 0 && err == nil {
		now := max(time.Now().UnixMicro(), s.out.last)
		_, err = s.out.index.Write(protocol.AppendRun(nil, s.stderr, uint64(n), uint64(now-s.out.last)))
		s.out.last = now
	}
	return n, err
}
