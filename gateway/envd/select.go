package envd

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/agbox-dev/agbox/gateway/envd/proto/process"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// maxEnded is how many execs are looked at for one that has ended.
const maxEnded = 100

// find returns the newest command that a selector means; of those that have just ended, too, with ended.
func (b *box) find(ctx context.Context, selector *process.ProcessSelector, ended bool) (*agboxv1.ExecStatus, error) {
	var fits func(*agboxv1.ExecStatus) bool
	var what string
	switch s := selector.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		fits, what = func(e *agboxv1.ExecStatus) bool { return e.Pid == s.Pid && s.Pid != 0 }, fmt.Sprintf("pid %d", s.Pid)
	case *process.ProcessSelector_Tag:
		fits, what = func(e *agboxv1.ExecStatus) bool { return e.Tag == s.Tag && s.Tag != "" }, fmt.Sprintf("tag %q", s.Tag)
	default:
		return nil, connect.NewError(connect.CodeUnimplemented, errSelector)
	}
	running, err := b.client.ListActiveExecs(ctx, &agboxv1.ListActiveExecsRequest{SandboxId: &b.id})
	if err != nil {
		return nil, rpcError(err)
	}
	for _, exec := range running.GetExecs() {
		if fits(exec) {
			return exec, nil
		}
	}
	if ended {
		all, err := b.client.ListExecs(ctx, &agboxv1.ListExecsRequest{SandboxId: b.id, Limit: maxEnded})
		if err != nil {
			return nil, rpcError(err)
		}
		for _, exec := range all.GetExecs() {
			if at := exec.GetEndedAt(); fits(exec) && at != nil && time.Since(at.AsTime()) < memory {
				return exec, nil
			}
		}
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no process with %s runs", what))
}

// List implements processconnect.ProcessHandler.
func (p *processes) List(ctx context.Context, _ *connect.Request[process.ListRequest]) (*connect.Response[process.ListResponse], error) {
	b := boxOf(ctx)
	running, err := b.client.ListActiveExecs(ctx, &agboxv1.ListActiveExecsRequest{SandboxId: &b.id})
	if err != nil {
		return nil, rpcError(err)
	}
	list := &process.ListResponse{}
	for _, exec := range running.GetExecs() {
		if exec.Pid == 0 || len(exec.Command) == 0 { // it is about to start
			continue
		}
		info := &process.ProcessInfo{Pid: exec.Pid, Config: &process.ProcessConfig{Cmd: exec.Command[0], Args: exec.Command[1:], Envs: exec.EnvOverrides}}
		if exec.Cwd != "" {
			info.Config.Cwd = &exec.Cwd
		}
		if exec.Tag != "" {
			info.Tag = &exec.Tag
		}
		list.Processes = append(list.Processes, info)
	}
	return connect.NewResponse(list), nil
}

// killed is how long SendSignal waits for a command to be reaped that it has killed.
const killed = 10 * time.Second
