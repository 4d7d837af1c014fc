package sdk

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// State is where a sandbox is in its life.
type State string

// A daemon newer than this package may know others.
const (
	StatePending  State = "PENDING"
	StateReady    State = "READY"
	StateFailed   State = "FAILED"
	StateStopped  State = "STOPPED"
	StateDeleting State = "DELETING"
	StateDeleted  State = "DELETED"
	StatePaused   State = "PAUSED"
	StateDraining State = "DRAINING"
	// StateDormant: a lazy sandbox before its first use.
	StateDormant State = "DORMANT"
)

// Sandbox is a sandbox as it was when the daemon was asked.
type Sandbox struct {
	ID    string
	State State
	Image string
	// Labels and services as the spec gave them.
	Labels           map[string]string
	RequiredServices []Service
	OptionalServices []Service
	CreatedAt        time.Time
	StateChangedAt   time.Time
	// LastEventSequence is the newest event's; a subscription from it misses nothing.
	LastEventSequence uint64
	// ExpiresAt is when the sandbox's time ends, IdleAt when it counts as idle if nothing happens; zero for never.
	ExpiresAt, IdleAt time.Time
	// LeaseEndsAt is when the sandbox ends unless somebody holds its lease again; zero while somebody does, or without one.
	LeaseEndsAt time.Time
	// Restarts counts the restarts in a row after crashes.
	Restarts uint32
	// Recovered: the daemon's database had lost the sandbox, and what it was asked to be was put together from its containers.
	Recovered bool
	// Ports are where the published ones are reached while READY.
	Ports []Port
	// Set while FAILED, or DORMANT because it could not be made.
	ErrorCode    string
	ErrorMessage string
}

// Filter selects sandboxes; the zero value selects all that are not deleted.
type Filter struct {
	Labels map[string]string // a sandbox must carry all of them
	// States are those that it may be in; none: all.
	States []State
	// IncludeDeleted selects deleted ones too, as naming StateDeleted does.
	IncludeDeleted bool
}

// CreateSandbox creates a sandbox and waits until it is READY, or only accepted if it is lazy. Whenever the sandbox was accepted,
// the value returned has its ID, also beside an error: *SandboxFailedError, *SandboxDeletedError or
// the context's. It is not deleted then.
func (c *Client) CreateSandbox(ctx context.Context, spec Spec, opts ...CreateOption) (Sandbox, error) {
	call, resp, err := c.create(ctx, spec, opts)
	if err != nil {
		return Sandbox{}, err
	}
	return c.accepted(ctx, resp, call)
}

func (c *Client) create(ctx context.Context, spec Spec, opts []CreateOption) (createCall, *agboxv1.CreateSandboxResponse, error) {
	call := createCall{waiting: waiting{wait: true}}
	for _, opt := range opts {
		opt.create(&call)
	}
	resp, err := c.raw.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{
		CreateSpec: spec.proto(), SandboxId: call.id, ConfigYaml: call.config, SnapshotId: call.snapshot,
	})
	return call, resp, err
}

// accepted waits for a sandbox to be READY, if that is asked for.
func (c *Client) accepted(ctx context.Context, resp *agboxv1.CreateSandboxResponse, call createCall) (Sandbox, error) {
	box := sandboxOf(resp.GetSandbox())
	switch {
	case !call.wait, box.State == StateDormant:
		return box, nil
	case box.State != StatePending: // the answer to a request that was repeated
		return box, toReady.judge(box)
	}
	last, err := c.through(ctx, box.ID, box.LastEventSequence, call.waiting, toReady, func(e Event) (bool, error) {
		if e.State != box.State {
			box.State, box.StateChangedAt = e.State, e.Time
		}
		box.LastEventSequence = e.Sequence
		if e.Type == EventSandboxReady {
			box.Ports = e.Ports
		}
		if e.Type == EventSandboxFailed {
			box.ErrorCode, box.ErrorMessage = e.ErrorCode, e.ErrorMessage
		}
		return toReady.watch(e)
	})
	if last.ID != "" {
		box = last
	}
	return box, err
}

// GetSandbox returns the sandbox, deleted ones too as long as their history is kept.
func (c *Client) GetSandbox(ctx context.Context, id string) (Sandbox, error) {
	resp, err := c.raw.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil {
		return Sandbox{}, err
	}
	return sandboxOf(resp.GetSandbox()), nil
}

// ListSandboxes returns what the filter selects, newest first.
func (c *Client) ListSandboxes(ctx context.Context, filter Filter) ([]Sandbox, error) {
	resp, err := c.raw.ListSandboxes(ctx, &agboxv1.ListSandboxesRequest{
		IncludeDeleted: filter.IncludeDeleted, LabelSelector: filter.Labels, States: protoStates(filter.States),
	})
	if err != nil {
		return nil, err
	}
	return all(resp.GetSandboxes(), sandboxOf), nil
}

// Resume starts a STOPPED sandbox again and waits until it is READY.
func (c *Client) Resume(ctx context.Context, id string, opts ...WaitOption) error {
	accepted, err := c.raw.ResumeSandbox(ctx, &agboxv1.ResumeSandboxRequest{SandboxId: id})
	return c.change(ctx, id, toReady, waits(opts), accepted, err)
}

// Delete removes a sandbox in whatever state and waits until nothing of it is left. Deleting twice
// is no error.
func (c *Client) Delete(ctx context.Context, id string, opts ...WaitOption) error {
	if _, err := c.raw.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id}); err != nil {
		return err
	}
	return c.awaitDeleted(ctx, id, waits(opts))
}

func sandboxOf(h *agboxv1.SandboxHandle) Sandbox {
	return Sandbox{
		ID:                h.GetSandboxId(),
		State:             stateOf(h.GetState()),
		Image:             h.GetImage(),
		Labels:            h.GetLabels(),
		RequiredServices:  servicesOf(h.GetRequiredServices()),
		OptionalServices:  servicesOf(h.GetOptionalServices()),
		CreatedAt:         timeOf(h.GetCreatedAt()),
		StateChangedAt:    timeOf(h.GetStateChangedAt()),
		LastEventSequence: h.GetLastEventSequence(),
		ErrorCode:         h.GetErrorCode(),
		ErrorMessage:      h.GetErrorMessage(),
		ExpiresAt:         timeOf(h.GetExpiresAt()),
		IdleAt:            timeOf(h.GetIdleAt()),
		LeaseEndsAt:       timeOf(h.GetLeaseEndsAt()),
		Restarts:          h.GetRestarts(),
		Recovered:         h.GetRecovered(),
		Ports:             portsOf(h.GetPorts()),
	}
}

func stateOf(s agboxv1.SandboxState) State {
	return State(strings.TrimPrefix(s.String(), "SANDBOX_STATE_"))
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func portsOf(list []*agboxv1.PublishedPort) []Port {
	var ports []Port
	for _, p := range list {
		ports = append(ports, Port{
			ContainerPort: uint16(p.GetContainerPort()), HostPort: uint16(p.GetHostPort()), HostIP: p.GetHostIp(), Protocol: p.GetProtocol(),
		})
	}
	return ports
}
