package sdk

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Selection is which sandboxes a call on many is about: those that carry all of the labels and are in one of the
// states. No states are all of them. No labels are all sandboxes, which StopSandboxes and its like refuse.
type Selection struct {
	Labels map[string]string
	States []State
}

func protoStates(states []State) []agboxv1.SandboxState {
	var list []agboxv1.SandboxState
	for _, state := range states {
		list = append(list, agboxv1.SandboxState(agboxv1.SandboxState_value["SANDBOX_STATE_"+string(state)]))
	}
	return list
}

// StopSandboxes stops all that is selected and can be stopped, and waits until each is STOPPED. It returns the ids of
// those that accepted, newest first, also beside an error of the wait. One that does not fit, such as one that is
// STOPPED already, is left out.
func (c *Client) StopSandboxes(ctx context.Context, sel Selection, opts ...StopOption) ([]string, error) {
	call := stopOf(opts)
	resp, err := c.raw.StopSandboxes(ctx, &agboxv1.StopSandboxesRequest{
		LabelSelector: sel.Labels, States: protoStates(sel.States), Force: call.force, Grace: call.grace})
	return c.bulk(ctx, toStopped, call.waiting, resp, err)
}

// ResumeSandboxes starts all that is selected and STOPPED again, and waits until each is READY. It returns the ids of
// those that accepted, newest first, also beside an error of the wait.
func (c *Client) ResumeSandboxes(ctx context.Context, sel Selection, opts ...WaitOption) ([]string, error) {
	resp, err := c.raw.ResumeSandboxes(ctx, &agboxv1.ResumeSandboxesRequest{LabelSelector: sel.Labels, States: protoStates(sel.States)})
	return c.bulk(ctx, toReady, waits(opts), resp, err)
}

// DeleteSandboxes deletes all that is selected, and waits until it is gone. It returns the ids of those whose deletion was
// accepted, newest first, also beside an error of the wait.
func (c *Client) DeleteSandboxes(ctx context.Context, sel Selection, opts ...WaitOption) ([]string, error) {
	resp, err := c.raw.DeleteSandboxes(ctx, &agboxv1.DeleteSandboxesRequest{LabelSelector: sel.Labels, States: protoStates(sel.States)})
	if err != nil {
		return nil, err
	}
	return resp.GetDeletedSandboxIds(), c.allDeleted(ctx, resp.GetDeletedSandboxIds(), waits(opts))
}

func (c *Client) allDeleted(ctx context.Context, ids []string, w waiting) error {
	var failures []error
	for _, id := range ids {
		failures = append(failures, c.awaitDeleted(ctx, id, w))
	}
	return errors.Join(failures...)
}

// acceptances are the sandboxes that accepted something, each with the sequence of the event that tells of it.
type acceptances interface {
	GetSandboxIds() []string
	GetEventSequences() *agboxv1.EventSequences
}

// bulk waits, one after the other, for the transition of each that accepted.
func (c *Client) bulk(ctx context.Context, t transition, w waiting, accepted acceptances, err error) ([]string, error) {
	if err != nil || !w.wait {
		return accepted.GetSandboxIds(), err
	}
	var failures []error
	for i, sequence := range accepted.GetEventSequences().GetValues() {
		_, err := c.through(ctx, accepted.GetSandboxIds()[i], sequence, w, t, t.watch)
		failures = append(failures, err)
	}
	return accepted.GetSandboxIds(), errors.Join(failures...)
}

// Pruning is what Prune deletes.
type Pruning struct {
	// Labels are those that a sandbox or snapshot must carry; none: whatever labels it has.
	Labels map[string]string
	// States are those of sandboxes to delete; none: STOPPED and FAILED.
	States []State
	// OlderThan is how long a sandbox must have been in its state, and how old a snapshot must be.
	OlderThan time.Duration
	// Snapshots also deletes snapshots that no sandbox was made from.
	Snapshots bool
	// DryRun tells what would be deleted, and changes nothing.
	DryRun bool
}

// Prune deletes sandboxes that are at an end, and waits until they are gone. It returns the ids of those whose deletion
// was accepted, and of the snapshots that it deleted, also beside an error of the wait.
func (c *Client) Prune(ctx context.Context, p Pruning, opts ...WaitOption) (sandboxes, snapshots []string, err error) {
	resp, err := c.raw.Prune(ctx, &agboxv1.PruneRequest{
		LabelSelector: p.Labels, States: protoStates(p.States), OlderThan: durationpb.New(p.OlderThan),
		Snapshots: p.Snapshots, DryRun: p.DryRun,
	})
	if err == nil && !p.DryRun {
		err = c.allDeleted(ctx, resp.GetSandboxIds(), waits(opts))
	}
	return resp.GetSandboxIds(), resp.GetSnapshotIds(), err
}

// WithStates watches only events with one of these states, and snapshots of sandboxes in one. The sequences of a sandbox
// have gaps then.
func WithStates(states ...State) WatchOption {
	return func(r *agboxv1.WatchSandboxesRequest) { r.States = protoStates(states) }
}
