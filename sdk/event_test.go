package sdk_test

import (
	"context"
	"errors"
	"testing"

	"github.com/agbox-dev/agbox/sdk"
)

func TestSubscribe(t *testing.T) {
	c, _, _ := start(t)
	box := ready(t, c)
	if err := c.Delete(t.Context(), box.ID); err != nil {
		t.Fatal(err)
	}
	var got []sdk.EventType
	for e, err := range c.Subscribe(t.Context(), box.ID, sdk.FromSequence(1)) {
		if err != nil {
			t.Fatal(err)
		}
		if e.SandboxID != box.ID || e.Sequence != uint64(len(got)+2) || !e.Replay || e.ID == "" || e.Time.IsZero() {
			t.Errorf("got %+v", e)
		}
		if e.Type == sdk.EventSandboxDeleted && (e.Reason != "delete_requested" || e.State != sdk.StateDeleted) {
			t.Errorf("got %+v", e)
		}
		got = append(got, e.Type)
	}
	want := []sdk.EventType{sdk.EventSandboxPreparing, sdk.EventSandboxReady, sdk.EventSandboxDeleteRequested, sdk.EventSandboxDeleted}
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("event %d is %s, want %s", i, got[i], want[i])
		}
	}
}

func TestSubscribeChan(t *testing.T) {
	c, d, _ := start(t)
	ready := make(chan struct{})
	on(d, "prepare web in box1", func() error { <-ready; return errors.New("why") })
	box, err := c.CreateSandbox(t.Context(), sdk.Spec{Image: "debian", OptionalServices: []sdk.Service{{Name: "web", Image: "nginx"}}}, sdk.WithSandboxID("box1"))
	if err != nil {
		t.Fatal(err)
	}
	s := c.SubscribeChan(t.Context(), box.ID, sdk.FromSequence(box.LastEventSequence), sdk.WithSnapshot())
	defer s.Close()
	if e := <-s.Events(); !e.Snapshot || e.State != sdk.StateReady {
		t.Errorf("got %+v, want the snapshot", e)
	}
	close(ready)
	if e := <-s.Events(); e.Type != sdk.EventServiceFailed || e.Service != "web" || e.ErrorCode == "" || e.ErrorMessage != "why" || e.Replay {
		t.Errorf("got %+v", e)
	}
	// Closed while an event is on offer that nobody takes.
	if err := c.Stop(t.Context(), box.ID); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s.Close()
	if _, open := <-s.Events(); open {
		t.Error("channel is open after Close")
	}
	if err := s.Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestSubscribeChanEnds(t *testing.T) {
	c, _, _ := start(t)
	s := c.SubscribeChan(t.Context(), "none")
	defer s.Close()
	for e := range s.Events() {
		t.Errorf("got %+v", e)
	}
	if err := s.Err(); !errors.Is(err, sdk.ErrSandboxNotFound) {
		t.Errorf("got %v", err)
	}
}

// TestSnapshotEvents: the log of a sandbox tells which snapshot was made of it.
func TestSnapshotEvents(t *testing.T) {
	c, _, _ := start(t)
	box := ready(t, c)
	made, err := c.Snapshot(t.Context(), box.ID, sdk.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range c.Subscribe(t.Context(), box.ID, sdk.FromSequence(box.LastEventSequence)) {
		if err != nil || e.SnapshotID != made.ID || e.Type != sdk.EventSnapshotRequested && e.Type != sdk.EventSnapshotMade {
			t.Errorf("got %+v, %v, want the snapshot %s", e, err, made.ID)
		}
		if err != nil || e.Type != sdk.EventSnapshotRequested {
			break
		}
	}
}
