package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/fleet"
	"github.com/agbox-dev/agbox/server/refusal"
	"github.com/agbox-dev/agbox/server/spec"
	"github.com/agbox-dev/agbox/text"
)

func (s *Server) Ping(context.Context, *agboxv1.PingRequest) (*agboxv1.PingResponse, error) {
	isolated, problem := s.runtime.Isolated()
	return &agboxv1.PingResponse{Version: s.config.Version, Daemon: "agboxd", Isolated: isolated, IsolationProblem: problem}, nil
}

func (s *Server) CreateSandbox(ctx context.Context, req *agboxv1.CreateSandboxRequest) (*agboxv1.CreateSandboxResponse, error) {
	if req.SnapshotId != "" {
		return s.createFromSnapshot(ctx, req)
	}
	resolved, err := spec.Resolve(req, s.config.Host)
	if err != nil {
		return nil, err
	}
	req.SandboxId = cmp.Or(req.SandboxId, uuid.NewString())
	if err := s.creatable(ctx, req.SandboxId, resolved); err != nil {
		return nil, err
	}
	return created(s.system.Create(ctx, req.SandboxId, resolved.Accepted(), requestID(ctx)))
}

// creatable refuses a sandbox that this host cannot have, or not now.
func (s *Server) creatable(ctx context.Context, id string, resolved *spec.Resolved) error {
	if err := s.layered(resolved); err != nil {
		return err
	}
	if err := s.restricted(resolved.Spec); err != nil {
		return err
	}
	if err := s.runnable(ctx, resolved.Spec.Runtime); err != nil {
		return err
	}
	for _, skipped := range resolved.Skipped {
		s.log.Info("builtin tool mount skipped", "sandbox_id", id, "why", skipped)
	}
	if _, again := s.system.Spec(id); !again {
		return s.room()
	}
	return nil
}

// created answers a create.
func created(view actors.View, err error) (*agboxv1.CreateSandboxResponse, error) {
	if err != nil {
		return nil, err
	}
	return &agboxv1.CreateSandboxResponse{Sandbox: fleet.Handle(view)}, nil
}

const reasonNoCopyOnWrite = "COPY_ON_WRITE_UNAVAILABLE"

// layered refuses a spec with copy-on-write mounts where the runtime cannot have any.
func (s *Server) layered(resolved *spec.Resolved) error {
	at := slices.IndexFunc(resolved.Mounts, func(m spec.Mount) bool { return m.CopyOnWrite })
	if at < 0 {
		return nil
	}
	problem := s.runtime.CopyOnWrite()
	if problem == nil {
		return nil
	}
	m := resolved.Mounts[at]
	field, advice := "create_spec.mounts", "mount it read-only or writable, or copy it in"
	if m.Tool != "" {
		field, advice = "create_spec.builtin_tools", fmt.Sprintf("name the tool as %s:rw, which writes to the host's files, or leave it out", m.Tool)
	}
	return refusal.New(codes.FailedPrecondition, reasonNoCopyOnWrite, field, "%s cannot be mounted copy-on-write: %v; %s", m.Target, problem, advice)
}

const reasonNoRestriction = "NETWORK_RESTRICTION_UNAVAILABLE"

// restricted refuses a spec whose network mode takes packet rules where there are none, whatever the configuration requires.
func (s *Server) restricted(create *agboxv1.CreateSpec) error {
	if !spec.Restricted(create) {
		return nil
	}
	isolated, problem := s.runtime.Isolated()
	if isolated {
		return nil
	}
	return refusal.New(codes.FailedPrecondition, reasonNoRestriction, "create_spec.network.mode",
		"%q needs packet rules, and agboxd cannot set them here: %s; use \"none\" without services, or leave the network as it is", create.Network.Mode, problem)
}

const reasonRuntimeUnknown = "RUNTIME_UNKNOWN"

// runnable refuses a runtime that the engine does not have.
func (s *Server) runnable(ctx context.Context, runtime string) error {
	if runtime == "" {
		return nil
	}
	engine, err := s.runtime.Engine(ctx)
	if err != nil {
		return err
	}
	if slices.Contains(engine.Runtimes, runtime) {
		return nil
	}
	return refusal.New(codes.FailedPrecondition, reasonRuntimeUnknown, "create_spec.runtime",
		"the engine has no runtime %q; use one of %s, or add it to the engine's daemon.json under \"runtimes\"",
		text.Bound(runtime, 64), strings.Join(engine.Runtimes, ", "))
}

// requestID is the mark by which a client says that a create or an exec may be a repetition of an earlier try.
func requestID(ctx context.Context) string {
	if values := metadata.ValueFromIncomingContext(ctx, "agbox-request-id"); len(values) > 0 {
		return values[0]
	}
	return ""
}

// maxRequestID is how long a request's id may be, in bytes: it is kept with what was accepted.
const maxRequestID = 256

// reasonRequestID: an id of a request that cannot be kept.
const reasonRequestID = "REQUEST_ID_INVALID"

func validRequestID(ctx context.Context) error {
	if id := requestID(ctx); len(id) > maxRequestID || !utf8.ValidString(id) {
		return refusal.New(codes.InvalidArgument, reasonRequestID, "agbox-request-id",
			"the id has %d bytes: use up to %d of valid UTF-8, such as a UUID", len(id), maxRequestID)
	}
	return nil
}

func (s *Server) GetSandbox(_ context.Context, req *agboxv1.GetSandboxRequest) (*agboxv1.GetSandboxResponse, error) {
	view, err := s.system.Sandbox(req.SandboxId)
	if err != nil {
		return nil, err
	}
	return &agboxv1.GetSandboxResponse{Sandbox: fleet.Handle(view)}, nil
}

func (s *Server) ListSandboxes(_ context.Context, req *agboxv1.ListSandboxesRequest) (*agboxv1.ListSandboxesResponse, error) {
	if err := cmp.Or(spec.ValidateLabels("label_selector", req.LabelSelector), fleet.KnownStates("states", req.States)); err != nil {
		return nil, err
	}
	views, err := s.fleet.Matching(req.LabelSelector, req.States...)
	if err != nil {
		return nil, err
	}
	deleted := req.IncludeDeleted || len(req.States) > 0 // who names DELETED wants them
	response := &agboxv1.ListSandboxesResponse{}
	for _, view := range views {
		if deleted || view.State.Phase != lifecycle.Deleted {
			response.Sandboxes = append(response.Sandboxes, fleet.Handle(view))
		}
	}
	elideHandles(response)
	return response, nil
}

func (s *Server) ResumeSandbox(ctx context.Context, req *agboxv1.ResumeSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	return s.request(ctx, req.SandboxId, lifecycle.Resume{})
}

func (s *Server) StopSandbox(ctx context.Context, req *agboxv1.StopSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	if err := spec.ValidateDuration("grace", req.Grace); err != nil {
		return nil, err
	}
	stop := lifecycle.Stop{Reason: lifecycle.ReasonStopRequested, Force: req.Force}
	if req.Grace != nil {
		grace := req.Grace.AsDuration()
		stop.Grace = &grace
	}
	return s.request(ctx, req.SandboxId, stop)
}

func (s *Server) DeleteSandbox(ctx context.Context, req *agboxv1.DeleteSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	return s.request(ctx, req.SandboxId, lifecycle.Delete{Reason: lifecycle.ReasonDeleteRequested})
}

func (s *Server) request(ctx context.Context, id string, command lifecycle.Command) (*agboxv1.AcceptedResponse, error) {
	sequence, err := s.system.Request(ctx, id, command)
	if err != nil {
		return nil, err
	}
	return &agboxv1.AcceptedResponse{Accepted: true, EventSequence: &sequence}, nil
}

func (s *Server) DeleteSandboxes(ctx context.Context, req *agboxv1.DeleteSandboxesRequest) (*agboxv1.DeleteSandboxesResponse, error) {
	ids, _, err := s.bulk(ctx, req.LabelSelector, req.States, lifecycle.Delete{Reason: lifecycle.ReasonDeleteRequested})
	if err != nil {
		return nil, err
	}
	return &agboxv1.DeleteSandboxesResponse{DeletedSandboxIds: ids, DeletedCount: uint32(len(ids))}, nil
}
