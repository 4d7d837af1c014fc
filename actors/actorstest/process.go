package actorstest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// processGrace is how long a process has from TERM to KILL, and its output to end after it.
const processGrace = 2 * time.Second

// Process is a Play that runs the command as a process group of this machine, as this user and with this environment
// beside the command's own. A working directory that is not absolute, or none, is the one of the sandbox's logs; a terminal
// is a pipe.
func (r *Runtime) Process(ctx context.Context, c *Command) runtime.ExecResult {
	stdout, _ := r.ExecLogs(c.Request.SandboxId, c.Request.ExecId)
	cmd := exec.CommandContext(ctx, c.Request.Command[0], c.Request.Command[1:]...)
	cmd.Dir, cmd.Env = filepath.Dir(stdout), os.Environ()
	if filepath.IsAbs(c.Request.Cwd) {
		cmd.Dir = c.Request.Cwd
	}
	for name, value := range c.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = processGrace
	if c.Request.CwdFromHome && !filepath.IsAbs(c.Request.Cwd) {
		cmd.Dir = filepath.Join(cmd.Dir, c.Request.Cwd)
	}
	if _, err := accountOf(&c.Request.User); err != nil {
		return runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FAILED, Code: "EXEC_USER_UNKNOWN", Message: err.Error()}
	}
	_, err := os.Stat(cmd.Dir)
	code := "EXEC_CWD_INVALID"
	if err == nil {
		code, err = "EXEC_START_FAILED", cmd.Start()
	}
	switch {
	case err == nil:
		r.pids.Set(c.Request.ExecId, cmd.Process.Pid)
		result := ended(cmd, c.Signals)
		result.PID = cmd.Process.Pid
		return result
	case code == "EXEC_CWD_INVALID":
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		code = "EXEC_COMMAND_NOT_FOUND"
	case errors.Is(err, fs.ErrPermission):
		code = "EXEC_COMMAND_NOT_EXECUTABLE"
	}
	return runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FAILED, Code: code, Message: fmt.Sprintf("cannot run %q: %v", c.Request.Command[0], err)}
}

// ended waits for a process, and ends what it left behind.
func ended(cmd *exec.Cmd, signals <-chan syscall.Signal) runtime.ExecResult {
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_ = cmd.Wait() // ProcessState tells
	}()
	for running := true; running; {
		select {
		case <-waited:
			running = false
		case signal := <-signals:
			_ = cmd.Process.Signal(signal)
		}
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	result := runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FINISHED, ExitCode: int32(cmd.ProcessState.ExitCode())}
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		result.Signal, result.ExitCode = int32(status.Signal()), 128+int32(status.Signal())
	}
	return result
}
