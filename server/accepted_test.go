package server_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

// TestOwnOutcome: of two clients that ask for the same, one after the other, each sees how its own request came out: the answer
// says where in the log that begins.
func TestOwnOutcome(t *testing.T) {
	t.Parallel()
	fake := actorstest.New()
	results := make(chan error)
	fake.Before = func(_ context.Context, call string) error {
		if call == "pause box-1" {
			return <-results
		}
		return nil
	}
	f := startFleet(t, actors.Config{}, fake)
	f.create("box-1", map[string]string{"team": "a"})
	before, err := f.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: "box-1"})
	if err != nil {
		t.Fatal(err)
	}
	var accepted []uint64
	for _, result := range []error{errors.New("no freezer"), nil} {
		answer, err := f.PauseSandbox(t.Context(), &agboxv1.PauseSandboxRequest{SandboxId: "box-1"})
		if err != nil {
			t.Fatal(err)
		}
		accepted = append(accepted, answer.GetEventSequence())
		results <- result
		f.rest("box-1")
	}
	last := before.Sandbox.LastEventSequence
	if len(accepted) != 2 || accepted[0] != last+1 || accepted[1] != last+3 {
		t.Errorf("after %d events the requests were accepted at %v", last, accepted)
	}
	events, err := f.db.Events("box-1", accepted[1], 10)
	if err != nil || len(events) != 1 || events[0].EventType != agboxv1.EventType_SANDBOX_PAUSED {
		t.Errorf("the second one leads to %v, %v", events, err)
	}

	stopped, err := f.StopSandboxes(t.Context(), &agboxv1.StopSandboxesRequest{LabelSelector: map[string]string{"team": "a"}})
	if err != nil || len(stopped.EventSequences.GetValues()) != 1 || stopped.EventSequences.Values[0] != accepted[1]+2 {
		t.Errorf("all of a team were stopped with %v, %v", stopped, err)
	}
	f.rest("box-1")
	client, err := sdk.New(sdk.WithSocket(filepath.Join(f.dir, "s", "agboxd.sock")))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Resume(t.Context(), "box-1"); err != nil {
		t.Error(err)
	}
	go func() { results <- errors.New("no freezer") }()
	if failed, ok := errors.AsType[*sdk.TransitionError](client.Pause(t.Context(), "box-1")); !ok || failed.Message != "no freezer" {
		t.Errorf("a pause that fails is told as %v", failed)
	}
}

// rest waits until no operation of the sandbox is in progress.
func (f *fleet) rest(id string) {
	f.t.Helper()
	if _, err := f.WaitSandbox(f.t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id}); err != nil {
		f.t.Fatal(err)
	}
}
