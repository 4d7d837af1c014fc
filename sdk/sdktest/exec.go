package sdktest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// process is one exec, played by a process group of this machine.
type process struct {
	status    *agboxv1.ExecStatus
	pid       int
	cancelled bool
	timeout   *time.Timer // nil without one
	ended     chan struct{}
}

// cancel, kill and event want the daemon's mu held.
func (p *process) cancel() {
	p.cancelled = true
	p.signal(syscall.SIGTERM)
}

func (p *process) kill() {
	p.cancelled = true
	p.signal(syscall.SIGKILL)
}

func (p *process) signal(sig syscall.Signal) {
	if p.pid != 0 && p.status.State == agboxv1.ExecState_EXEC_STATE_RUNNING {
		_ = syscall.Kill(-p.pid, sig)
	}
}

func (p *process) event(kind agboxv1.EventType) *agboxv1.SandboxEvent {
	s := p.status
	return &agboxv1.SandboxEvent{EventType: kind, Details: &agboxv1.SandboxEvent_Exec{Exec: &agboxv1.ExecEventDetails{
		ExecId: s.ExecId, ExitCode: s.ExitCode, ExecState: s.State, ErrorCode: s.ErrorCode, ErrorMessage: s.Error,
		Signal: s.Signal, StartedAt: s.StartedAt, EndedAt: s.EndedAt, Resources: s.Resources,
	}}}
}

// CreateExec runs the command on this machine. Its log files appear some time after the reply, and
// a relative or absent cwd is the directory of the logs.
func (d *Daemon) CreateExec(_ context.Context, req *agboxv1.CreateExecRequest) (*agboxv1.CreateExecResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.find("CreateExec", req.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if s.handle.State != ready {
		return nil, Refusal(codes.FailedPrecondition, "SANDBOX_NOT_READY",
			fmt.Sprintf("sandbox %q is %v: resume it first", s.handle.SandboxId, s.handle.State), "sandbox_id", s.handle.SandboxId)
	}
	id := req.GetExecId()
	if id == "" {
		id = fmt.Sprintf("exec-%d", len(d.execs)+1)
	}
	if d.execs[id] != nil {
		return nil, Refusal(codes.AlreadyExists, "EXEC_ID_ALREADY_EXISTS", fmt.Sprintf("exec id %q was used before", id), "exec_id", id)
	}
	dir := filepath.Join(d.dir, req.GetSandboxId())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &process{ended: make(chan struct{}), status: &agboxv1.ExecStatus{
		ExecId: id, SandboxId: req.GetSandboxId(), State: agboxv1.ExecState_EXEC_STATE_RUNNING,
		Command: req.GetCommand(), Cwd: req.GetCwd(), EnvOverrides: req.GetEnvOverrides(),
		StartedAt:     timestamppb.New(d.Clock()),
		StdoutLogPath: filepath.Join(dir, id+".stdout.log"),
		StderrLogPath: filepath.Join(dir, id+".stderr.log"),
	}}
	if req.GetTimeout() != nil {
		p.timeout = time.AfterFunc(req.GetTimeout().AsDuration(), func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			p.status.Resources = &agboxv1.ExecResources{TimedOut: p.status.EndedAt == nil}
			p.signal(syscall.SIGTERM)
		})
	}
	d.execs[id] = p
	d.append(s, p.event(agboxv1.EventType_EXEC_STARTED))
	d.work.Go(func() { d.run(s, p, dir) })
	return &agboxv1.CreateExecResponse{ExecId: id, StdoutLogPath: p.status.StdoutLogPath, StderrLogPath: p.status.StderrLogPath}, nil
}

func (d *Daemon) run(s *sandbox, p *process, dir string) {
	err := d.wait(p, dir)
	d.mu.Lock()
	defer d.mu.Unlock()
	st := p.status
	if p.timeout != nil {
		p.timeout.Stop()
	}
	st.EndedAt = timestamppb.New(d.Clock())
	kind, exit := agboxv1.EventType_EXEC_FINISHED, (*exec.ExitError)(nil)
	st.State = agboxv1.ExecState_EXEC_STATE_FINISHED
	if errors.As(err, &exit) {
		st.ExitCode = int32(exit.ExitCode())
		if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() {
			st.Signal, st.ExitCode = int32(ws.Signal()), 128+int32(ws.Signal())
		}
	} else if err != nil {
		kind, st.State = agboxv1.EventType_EXEC_FAILED, agboxv1.ExecState_EXEC_STATE_FAILED
		st.ErrorCode, st.Error = failure(err), fmt.Sprintf("cannot run %q: %v", st.Command[0], err)
	}
	if p.cancelled {
		kind, st.State = agboxv1.EventType_EXEC_CANCELLED, agboxv1.ExecState_EXEC_STATE_CANCELLED
	}
	d.append(s, p.event(kind))
	close(p.ended)
}

var errCwd = errors.New("no such directory")

func failure(err error) string {
	switch {
	case errors.Is(err, errCwd):
		return "EXEC_CWD_INVALID"
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "EXEC_COMMAND_NOT_FOUND"
	case errors.Is(err, fs.ErrPermission):
		return "EXEC_COMMAND_NOT_EXECUTABLE"
	}
	return "EXEC_START_FAILED"
}

func (d *Daemon) wait(p *process, dir string) error {
	st := p.status
	cmd := exec.Command(st.Command[0], st.Command[1:]...)
	cmd.Dir, cmd.Env = dir, os.Environ()
	if filepath.IsAbs(st.Cwd) {
		cmd.Dir = st.Cwd
	}
	if _, err := os.Stat(cmd.Dir); err != nil {
		return fmt.Errorf("%s: %w", cmd.Dir, errCwd)
	}
	for key, value := range st.EnvOverrides {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := os.Create(st.StdoutLogPath)
	if err != nil {
		return err
	}
	defer stdout.Close()
	stderr, err := os.Create(st.StderrLogPath)
	if err != nil {
		return err
	}
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	d.mu.Lock()
	err = cmd.Start()
	if err == nil {
		p.pid = cmd.Process.Pid
		if p.cancelled {
			p.signal(syscall.SIGKILL)
		}
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return cmd.Wait()
}

func (d *Daemon) exec(rpc, id string) (*process, error) {
	if err := d.refusals[rpc]; err != nil {
		return nil, err
	}
	if p := d.execs[id]; p != nil {
		return p, nil
	}
	return nil, Refusal(codes.NotFound, "EXEC_NOT_FOUND", fmt.Sprintf("exec %q not found", id), "exec_id", id)
}

// CancelExec sends TERM to the exec's process group and nothing harder.
func (d *Daemon) CancelExec(_ context.Context, req *agboxv1.CancelExecRequest) (*agboxv1.AcceptedResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := d.exec("CancelExec", req.GetExecId())
	if err != nil {
		return nil, err
	}
	if p.status.State != agboxv1.ExecState_EXEC_STATE_RUNNING {
		return nil, Refusal(codes.FailedPrecondition, "EXEC_ALREADY_TERMINAL", fmt.Sprintf("exec %q has ended", req.GetExecId()), "exec_id", req.GetExecId())
	}
	p.cancel()
	return &agboxv1.AcceptedResponse{Accepted: true}, nil
}

// GetExec returns the exec as it is.
func (d *Daemon) GetExec(_ context.Context, req *agboxv1.GetExecRequest) (*agboxv1.GetExecResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := d.exec("GetExec", req.GetExecId())
	if err != nil {
		return nil, err
	}
	st := proto.CloneOf(p.status)
	st.LastEventSequence = d.sandboxes[st.SandboxId].handle.LastEventSequence
	return &agboxv1.GetExecResponse{Exec: st}, nil
}

// ListActiveExecs returns what runs, in the order of ids.
func (d *Daemon) ListActiveExecs(_ context.Context, req *agboxv1.ListActiveExecsRequest) (*agboxv1.ListActiveExecsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	resp := &agboxv1.ListActiveExecsResponse{}
	for _, id := range slices.Sorted(maps.Keys(d.execs)) {
		st := d.execs[id].status
		if st.State == agboxv1.ExecState_EXEC_STATE_RUNNING && (req.SandboxId == nil || req.GetSandboxId() == st.SandboxId) {
			resp.Execs = append(resp.Execs, proto.CloneOf(st))
		}
	}
	return resp, d.refusals["ListActiveExecs"]
}
