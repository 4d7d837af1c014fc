package sdktest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// until has look called with mu held, now and after each append, until it says so or the time is over.
func (d *Daemon) until(ctx context.Context, timeout *durationpb.Duration, look func() (bool, error)) error {
	waiting := ctx
	if timeout != nil {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, timeout.AsDuration())
		defer cancel()
	}
	for {
		d.mu.Lock()
		changed := d.changed
		done, err := look()
		d.mu.Unlock()
		if done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-waiting.Done():
			return ctx.Err()
		}
	}
}

// WaitSandbox gives up only when the sandbox is DELETED; at rest is every state but PENDING and DELETING.
func (d *Daemon) WaitSandbox(ctx context.Context, req *agboxv1.WaitSandboxRequest) (*agboxv1.WaitSandboxResponse, error) {
	resp := &agboxv1.WaitSandboxResponse{}
	err := d.until(ctx, req.GetTimeout(), func() (bool, error) {
		s, err := d.find("WaitSandbox", req.GetSandboxId())
		if err != nil {
			return false, err
		}
		state := s.handle.State
		resp.Sandbox = proto.CloneOf(s.handle)
		resp.Reached = slices.Contains(req.GetStates(), state) ||
			len(req.GetStates()) == 0 && state != agboxv1.SandboxState_SANDBOX_STATE_PENDING && state != deleting
		return resp.Reached || state == deleted, nil
	})
	return resp, err
}

// WaitExec waits for the end of the process.
func (d *Daemon) WaitExec(ctx context.Context, req *agboxv1.WaitExecRequest) (*agboxv1.WaitExecResponse, error) {
	resp := &agboxv1.WaitExecResponse{}
	err := d.until(ctx, req.GetTimeout(), func() (bool, error) {
		p, err := d.exec("WaitExec", req.GetExecId())
		if err != nil {
			return false, err
		}
		resp.Exec, resp.Ended = proto.CloneOf(p.status), p.status.State != agboxv1.ExecState_EXEC_STATE_RUNNING
		return resp.Ended, nil
	})
	return resp, err
}

// ListExecs returns the newest first, by the clock, then in the order of ids.
func (d *Daemon) ListExecs(_ context.Context, req *agboxv1.ListExecsRequest) (*agboxv1.ListExecsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	resp := &agboxv1.ListExecsResponse{}
	for _, p := range d.execs {
		if (req.GetSandboxId() == "" || req.GetSandboxId() == p.status.SandboxId) &&
			(len(req.GetStates()) == 0 || slices.Contains(req.GetStates(), p.status.State)) {
			resp.Execs = append(resp.Execs, proto.CloneOf(p.status))
		}
	}
	slices.SortFunc(resp.Execs, func(a, b *agboxv1.ExecStatus) int {
		return cmp.Or(b.StartedAt.AsTime().Compare(a.StartedAt.AsTime()), strings.Compare(a.ExecId, b.ExecId))
	})
	resp.Execs = resp.Execs[:min(len(resp.Execs), int(cmp.Or(req.GetLimit(), 1000)))]
	return resp, d.refusals["ListExecs"]
}

// WatchSandboxes streams what is appended from now on.
func (d *Daemon) WatchSandboxes(req *agboxv1.WatchSandboxesRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxEvent]) error {
	d.mu.Lock()
	cursors := map[string]uint64{}
	var batch []*agboxv1.SandboxEvent
	for _, id := range d.order {
		s := d.sandboxes[id]
		cursors[id] = s.handle.LastEventSequence
		if req.GetIncludeCurrentSnapshot() && s.handle.State != deleted && matches(s.handle.GetLabels(), req.GetLabelSelector()) {
			batch = append(batch, d.snapshot(s)...)
		}
	}
	err := d.refusals["WatchSandboxes"]
	joined := d.joined
	d.mu.Unlock()
	if err != nil {
		return err
	}
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	if joined != nil {
		joined("*")
	}
	for {
		for _, event := range batch {
			if err := stream.Send(event); err != nil {
				return err
			}
		}
		d.mu.Lock()
		changed := d.changed
		batch = nil
		for _, id := range d.order {
			s := d.sandboxes[id]
			if !matches(s.handle.GetLabels(), req.GetLabelSelector()) {
				continue
			}
			for _, event := range s.events[cursors[id]:] {
				batch, cursors[id] = append(batch, proto.CloneOf(event)), event.Sequence
			}
		}
		d.mu.Unlock()
		if batch != nil {
			continue
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// GetStats tells the same of every READY sandbox, and half of it of its services.
func (d *Daemon) GetStats(_ context.Context, req *agboxv1.GetStatsRequest) (*agboxv1.GetStatsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.find("GetStats", req.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if s.handle.State != ready {
		return nil, Refusal(codes.FailedPrecondition, "SANDBOX_NOT_READY", "sandbox does not run", "sandbox_id", s.handle.SandboxId)
	}
	resp := &agboxv1.GetStatsResponse{Containers: []*agboxv1.ContainerStats{{
		CpuTime: durationpb.New(1500 * time.Millisecond), MemoryBytes: 3 << 20, MemoryLimitBytes: 1 << 30, Pids: 2,
		NetworkReceivedBytes: 2048, NetworkSentBytes: 1024, DiskReadBytes: 4096, DiskWrittenBytes: 8192,
	}}}
	for _, service := range s.handle.GetRequiredServices() {
		resp.Containers = append(resp.Containers, &agboxv1.ContainerStats{ServiceName: service.GetName(), Pids: 1})
	}
	return resp, nil
}

// Info counts the sandboxes; the engine is made up.
func (d *Daemon) Info(context.Context, *agboxv1.InfoRequest) (*agboxv1.InfoResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	resp := &agboxv1.InfoResponse{
		Version: "test", EngineVersion: "1.2.3", EngineApiVersion: "1.41", EngineOs: "an OS", StorageDriver: "none", Isolated: true,
		Sandboxes: map[string]uint32{}, NetworkPool: "192.0.2.0/24", SubnetsUsed: 1, SubnetsTotal: 16,
	}
	for _, s := range d.sandboxes {
		resp.Sandboxes[strings.TrimPrefix(s.handle.State.String(), "SANDBOX_STATE_")]++
	}
	for _, p := range d.execs {
		if p.status.State == agboxv1.ExecState_EXEC_STATE_RUNNING {
			resp.RunningExecs++
		}
	}
	return resp, d.refusals["Info"]
}

// Doctor finds one thing that could be better.
func (d *Daemon) Doctor(context.Context, *agboxv1.DoctorRequest) (*agboxv1.DoctorResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &agboxv1.DoctorResponse{Findings: []*agboxv1.Finding{
		{Check: "seccomp", Level: agboxv1.FindingLevel_FINDING_LEVEL_OK, Summary: "in force"},
		{Check: "disk", Level: agboxv1.FindingLevel_FINDING_LEVEL_WARNING, Summary: "nearly full", Remedy: "delete files"},
	}}, d.refusals["Doctor"]
}
