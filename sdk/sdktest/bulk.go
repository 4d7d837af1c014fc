package sdktest

import (
	"context"
	"slices"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
)

// each does something with every sandbox that matches, the newest first, and returns their ids. It wants d.mu held.
func (d *Daemon) each(labels map[string]string, in []agboxv1.SandboxState, do func(*sandbox)) (ids []string) {
	for _, id := range slices.Backward(d.order) {
		s := d.sandboxes[id]
		if matches(s.handle.GetLabels(), labels) && slices.Contains(in, s.handle.State) {
			do(s)
			ids = append(ids, id)
		}
	}
	return ids
}

// only returns those of the states that are wanted; none wanted are all.
func only(wanted []agboxv1.SandboxState, possible ...agboxv1.SandboxState) []agboxv1.SandboxState {
	return slices.DeleteFunc(possible, func(s agboxv1.SandboxState) bool { return len(wanted) > 0 && !slices.Contains(wanted, s) })
}

// StopSandboxes stops those that are READY.
func (d *Daemon) StopSandboxes(_ context.Context, req *agboxv1.StopSandboxesRequest) (*agboxv1.StopSandboxesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	reason := &agboxv1.SandboxPhaseDetails{Reason: "stop_requested", Force: req.GetForce(), Grace: req.GetGrace()}
	var sequences []uint64
	ids := d.each(req.GetLabelSelector(), only(req.GetStates(), ready), func(s *sandbox) {
		d.append(s, phase(agboxv1.EventType_SANDBOX_STOP_REQUESTED, reason))
		sequences = append(sequences, s.handle.LastEventSequence)
		d.finish(s, phase(agboxv1.EventType_SANDBOX_STOPPED, reason))
	})
	return &agboxv1.StopSandboxesResponse{SandboxIds: ids, EventSequences: &agboxv1.EventSequences{Values: sequences}}, d.refusals["StopSandboxes"]
}

// ResumeSandboxes makes those that are STOPPED READY again.
func (d *Daemon) ResumeSandboxes(_ context.Context, req *agboxv1.ResumeSandboxesRequest) (*agboxv1.ResumeSandboxesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var sequences []uint64
	ids := d.each(req.GetLabelSelector(), only(req.GetStates(), stopped), func(s *sandbox) {
		d.append(s, phase(agboxv1.EventType_SANDBOX_ACCEPTED, nil))
		sequences = append(sequences, s.handle.LastEventSequence)
		d.start(s, s.handle.Image)
	})
	return &agboxv1.ResumeSandboxesResponse{SandboxIds: ids, EventSequences: &agboxv1.EventSequences{Values: sequences}}, d.refusals["ResumeSandboxes"]
}

// Prune deletes what is STOPPED or FAILED, however old it is, and knows no snapshots.
func (d *Daemon) Prune(_ context.Context, req *agboxv1.PruneRequest) (*agboxv1.PruneResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := d.each(req.GetLabelSelector(), only(req.GetStates(), stopped, agboxv1.SandboxState_SANDBOX_STATE_FAILED), func(s *sandbox) {
		if !req.GetDryRun() {
			d.delete(s)
		}
	})
	return &agboxv1.PruneResponse{SandboxIds: ids}, d.refusals["Prune"]
}

// WatchStats tells of each READY sandbox once, and then of those that become so, once each time anything happens.
func (d *Daemon) WatchStats(req *agboxv1.WatchStatsRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxStats]) error {
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	for {
		d.mu.Lock()
		changed, err := d.changed, d.refusals["WatchStats"]
		ids := d.each(req.GetLabelSelector(), []agboxv1.SandboxState{ready}, func(*sandbox) {})
		d.mu.Unlock()
		if err != nil {
			return err
		}
		for _, id := range ids {
			err := stream.Send(&agboxv1.SandboxStats{SandboxId: id, Containers: []*agboxv1.ContainerStats{
				{CpuTime: durationpb.New(1500 * time.Millisecond), MemoryBytes: 3 << 20, Pids: 2}}})
			if err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
