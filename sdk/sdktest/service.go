package sdktest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	ready    = agboxv1.SandboxState_SANDBOX_STATE_READY
	stopped  = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	deleting = agboxv1.SandboxState_SANDBOX_STATE_DELETING
	deleted  = agboxv1.SandboxState_SANDBOX_STATE_DELETED
)

// Ping answers with version "test".
func (d *Daemon) Ping(context.Context, *agboxv1.PingRequest) (*agboxv1.PingResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &agboxv1.PingResponse{Version: "test", Daemon: "agboxd"}, d.refusals["Ping"]
}

// CreateSandbox plays the image's story.
func (d *Daemon) CreateSandbox(_ context.Context, req *agboxv1.CreateSandboxRequest) (*agboxv1.CreateSandboxResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.refusals["CreateSandbox"]; err != nil {
		return nil, err
	}
	d.created = req
	id, spec := req.GetSandboxId(), req.GetCreateSpec()
	if id == "" {
		id = fmt.Sprintf("sandbox-%d", len(d.order)+1)
	}
	if spec.GetImage() == "" && len(req.GetConfigYaml()) == 0 {
		return nil, Refusal(codes.InvalidArgument, "IMAGE_MISSING",
			"create_spec.image is empty: name the image to run", "field", "create_spec.image")
	}
	if d.sandboxes[id] != nil {
		return nil, Refusal(codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS",
			fmt.Sprintf("sandbox id %q was used before: choose another", id), "sandbox_id", id)
	}
	s := &sandbox{handle: &agboxv1.SandboxHandle{SandboxId: id, Image: spec.GetImage(), Labels: spec.GetLabels(),
		RequiredServices: spec.GetRequiredServices(), OptionalServices: spec.GetOptionalServices(),
		CreatedAt: timestamppb.New(d.Clock())}}
	d.sandboxes[id], d.order = s, append(d.order, id)
	d.append(s, phase(agboxv1.EventType_SANDBOX_ACCEPTED, nil))
	d.start(s, spec.GetImage())
	return &agboxv1.CreateSandboxResponse{Sandbox: proto.CloneOf(s.handle)}, nil
}

func (d *Daemon) start(s *sandbox, image string) {
	if image == ImageHold {
		return
	}
	d.work.Go(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.append(s, phase(agboxv1.EventType_SANDBOX_PREPARING, &agboxv1.SandboxPhaseDetails{Phase: "materialize"}))
		if image == ImageBroken {
			d.append(s, phase(agboxv1.EventType_SANDBOX_FAILED, &agboxv1.SandboxPhaseDetails{
				ErrorCode: "SANDBOX_CREATE_FAILED", ErrorMessage: `image "broken" does not start: choose another`}))
			return
		}
		d.append(s, phase(agboxv1.EventType_SANDBOX_READY, nil))
	})
}

// find wants d.mu held.
func (d *Daemon) find(rpc, id string) (*sandbox, error) {
	if err := d.refusals[rpc]; err != nil {
		return nil, err
	}
	if s := d.sandboxes[id]; s != nil {
		return s, nil
	}
	return nil, Refusal(codes.NotFound, "SANDBOX_NOT_FOUND", fmt.Sprintf("sandbox %q not found", id), "sandbox_id", id)
}

// GetSandbox returns the handle as it is.
func (d *Daemon) GetSandbox(_ context.Context, req *agboxv1.GetSandboxRequest) (*agboxv1.GetSandboxResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.find("GetSandbox", req.GetSandboxId())
	if err != nil {
		return nil, err
	}
	return &agboxv1.GetSandboxResponse{Sandbox: proto.CloneOf(s.handle)}, nil
}

// ListSandboxes returns the newest first.
func (d *Daemon) ListSandboxes(_ context.Context, req *agboxv1.ListSandboxesRequest) (*agboxv1.ListSandboxesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	resp := &agboxv1.ListSandboxesResponse{}
	for _, id := range slices.Backward(d.order) {
		h := d.sandboxes[id].handle
		if (h.State != deleted || req.GetIncludeDeleted()) && matches(h.GetLabels(), req.GetLabelSelector()) {
			resp.Sandboxes = append(resp.Sandboxes, proto.CloneOf(h))
		}
	}
	return resp, d.refusals["ListSandboxes"]
}

func matches(labels, selector map[string]string) bool {
	for key, want := range selector {
		if got, ok := labels[key]; !ok || got != want {
			return false
		}
	}
	return true
}

// ResumeSandbox makes a STOPPED sandbox READY again.
func (d *Daemon) ResumeSandbox(_ context.Context, req *agboxv1.ResumeSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.find("ResumeSandbox", req.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if s.handle.State != stopped {
		return nil, wrongState(s, "resume")
	}
	d.append(s, phase(agboxv1.EventType_SANDBOX_ACCEPTED, nil))
	accepted := s.accepted()
	d.start(s, s.handle.Image)
	return accepted, nil
}

func (s *sandbox) accepted() *agboxv1.AcceptedResponse {
	return &agboxv1.AcceptedResponse{Accepted: true, EventSequence: proto.Uint64(s.handle.LastEventSequence)}
}

// StopSandbox ends what runs in a READY sandbox.
func (d *Daemon) StopSandbox(_ context.Context, req *agboxv1.StopSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.find("StopSandbox", req.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if s.handle.State != ready {
		return nil, wrongState(s, "stop")
	}
	reason := &agboxv1.SandboxPhaseDetails{Reason: "stop_requested"}
	d.append(s, phase(agboxv1.EventType_SANDBOX_STOP_REQUESTED, reason))
	accepted := s.accepted()
	d.finish(s, phase(agboxv1.EventType_SANDBOX_STOPPED, reason))
	return accepted, nil
}

// DeleteSandbox deletes from every state.
func (d *Daemon) DeleteSandbox(_ context.Context, req *agboxv1.DeleteSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.find("DeleteSandbox", req.GetSandboxId())
	if err != nil {
		return nil, err
	}
	d.delete(s)
	return &agboxv1.AcceptedResponse{Accepted: true}, nil
}

func (d *Daemon) delete(s *sandbox) {
	if s.handle.State == deleting || s.handle.State == deleted {
		return
	}
	reason := &agboxv1.SandboxPhaseDetails{Reason: "delete_requested"}
	d.append(s, phase(agboxv1.EventType_SANDBOX_DELETE_REQUESTED, reason))
	d.finish(s, phase(agboxv1.EventType_SANDBOX_DELETED, reason))
}

// finish cancels the sandbox's execs and records the event when they have ended.
func (d *Daemon) finish(s *sandbox, event *agboxv1.SandboxEvent) {
	var running []*process
	for _, p := range d.execs {
		if p.status.SandboxId == s.handle.SandboxId {
			p.cancel()
			running = append(running, p)
		}
	}
	d.work.Go(func() {
		for _, p := range running {
			<-p.ended
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.append(s, event)
	})
}

// DeleteSandboxes deletes all that carry the labels.
func (d *Daemon) DeleteSandboxes(_ context.Context, req *agboxv1.DeleteSandboxesRequest) (*agboxv1.DeleteSandboxesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(req.GetLabelSelector()) == 0 {
		return nil, Refusal(codes.InvalidArgument, "LABEL_SELECTOR_EMPTY",
			"label_selector is empty: name at least one label", "field", "label_selector")
	}
	resp := &agboxv1.DeleteSandboxesResponse{}
	for _, id := range d.order {
		s := d.sandboxes[id]
		if s.handle.State == deleted || !matches(s.handle.GetLabels(), req.GetLabelSelector()) {
			continue
		}
		d.delete(s)
		resp.DeletedSandboxIds = append(resp.DeletedSandboxIds, id)
	}
	resp.DeletedCount = uint32(len(resp.DeletedSandboxIds))
	return resp, d.refusals["DeleteSandboxes"]
}

// SubscribeSandboxEvents follows the log as the contract says.
func (d *Daemon) SubscribeSandboxEvents(req *agboxv1.SubscribeSandboxEventsRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxEvent]) error {
	d.mu.Lock()
	s, err := d.find("SubscribeSandboxEvents", req.GetSandboxId())
	if err != nil {
		d.mu.Unlock()
		return err
	}
	from, replay := req.GetFromSequence(), s.handle.LastEventSequence
	if from > replay {
		d.mu.Unlock()
		return Refusal(codes.OutOfRange, "SANDBOX_EVENT_SEQUENCE_EXPIRED", fmt.Sprintf("sequence %d lies outside 0 to %d", from, replay))
	}
	var batch []*agboxv1.SandboxEvent
	if req.GetIncludeCurrentSnapshot() {
		batch = d.snapshot(s)
	}
	joined := d.joined
	d.mu.Unlock()
	if joined != nil {
		joined(req.GetSandboxId())
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
		for _, event := range s.events[from:] {
			event = proto.CloneOf(event)
			event.Replay = event.Sequence <= replay
			batch, from = append(batch, event), event.Sequence
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

func (d *Daemon) snapshot(s *sandbox) []*agboxv1.SandboxEvent {
	kind := agboxv1.EventType_SANDBOX_ACCEPTED
	for event, state := range states {
		if state == s.handle.State {
			kind = event
		}
	}
	events := []*agboxv1.SandboxEvent{{EventType: kind}}
	for _, id := range slices.Sorted(maps.Keys(d.execs)) {
		p := d.execs[id]
		if p.status.SandboxId == s.handle.SandboxId && p.status.State == agboxv1.ExecState_EXEC_STATE_RUNNING {
			events = append(events, p.event(agboxv1.EventType_EXEC_STARTED))
		}
	}
	for _, event := range events {
		event.SandboxId, event.Snapshot, event.SandboxState = s.handle.SandboxId, true, s.handle.State
		event.OccurredAt = timestamppb.New(d.Clock())
	}
	return events
}

func wrongState(s *sandbox, verb string) error {
	id, state := s.handle.SandboxId, s.handle.State
	return Refusal(codes.FailedPrecondition, "SANDBOX_INVALID_STATE",
		fmt.Sprintf("cannot %s sandbox %q: it is %v", verb, id, state), "sandbox_id", id)
}
