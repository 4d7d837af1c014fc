package raw_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"path/filepath"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

func create(t *testing.T, c *raw.Client, id string) {
	t.Helper()
	_, err := c.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: sdktest.ImageHold}})
	if err != nil {
		t.Fatal(err)
	}
}

func event(kind agboxv1.EventType) *agboxv1.SandboxEvent {
	return &agboxv1.SandboxEvent{EventType: kind}
}

// take reads n events and checks that their sequences go on from last.
func take(t *testing.T, next func() (*agboxv1.SandboxEvent, error, bool), last *uint64, n int) {
	t.Helper()
	for range n {
		e, err, ok := next()
		if !ok || err != nil || e.GetSequence() != *last+1 {
			t.Fatalf("after %d: got %v, %v, %v", *last, e, err, ok)
		}
		*last++
	}
}

func TestFollowSurvivesRestarts(t *testing.T) {
	d, socket := sdktest.Start(t)
	c := dial(t, socket)
	create(t, c, "box1")
	breaks := 0
	next, stop := iter.Pull2(c.Follow(t.Context(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: "box1"}, func(error) { breaks++ }))
	defer stop()
	var last uint64
	take(t, next, &last, 1)
	for range 3 {
		d.Append("box1", event(agboxv1.EventType_SANDBOX_PREPARING))
		take(t, next, &last, 1)
		d.Append("box1", event(agboxv1.EventType_SANDBOX_PREPARING)) // may be on its way when the daemon dies
		d.Shutdown()
		d.Append("box1", event(agboxv1.EventType_SANDBOX_PREPARING))
		if err := d.Serve(socket); err != nil {
			t.Fatal(err)
		}
		take(t, next, &last, 2)
	}
	if breaks == 0 {
		t.Error("no break was told")
	}
	d.Append("box1", event(agboxv1.EventType_SANDBOX_DELETE_REQUESTED))
	d.Append("box1", event(agboxv1.EventType_SANDBOX_DELETED))
	take(t, next, &last, 2)
	if e, err, ok := next(); ok {
		t.Errorf("after DELETED: %v, %v", e, err)
	}
}

func TestFollowEnds(t *testing.T) {
	d, socket := sdktest.Start(t)
	c := dial(t, socket)
	create(t, c, "box1")
	only := func(c *raw.Client, ctx context.Context, id string, from uint64) error {
		for _, err := range c.Follow(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: from}, nil) {
			return err
		}
		return nil
	}
	if err := only(c, t.Context(), "none", 0); !errors.Is(err, raw.ErrSandboxNotFound) {
		t.Errorf("no sandbox: %v", err)
	}
	if err := only(c, t.Context(), "box1", 9); !errors.Is(err, raw.ErrSandboxEventSequenceExpired) {
		t.Errorf("beyond the end: %v", err)
	}
	if err := only(dial(t, filepath.Join(t.TempDir(), "s")), t.Context(), "box1", 0); !errors.Is(err, raw.ErrUnavailable) {
		t.Errorf("no daemon: %v", err)
	}

	// A context that is done ends it, also while the daemon is away.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req := &agboxv1.SubscribeSandboxEventsRequest{SandboxId: "box1"}
	next, stop := iter.Pull2(c.Follow(ctx, req, func(error) { cancel() }))
	defer stop()
	var last uint64
	take(t, next, &last, 1)
	d.Shutdown()
	if _, err, ok := next(); !ok || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v, %v", err, ok)
	}
}

func TestFollowSnapshot(t *testing.T) {
	_, socket := sdktest.Start(t)
	c := dial(t, socket)
	create(t, c, "box1")
	req := &agboxv1.SubscribeSandboxEventsRequest{SandboxId: "box1", IncludeCurrentSnapshot: true}
	next, stop := iter.Pull2(c.Follow(t.Context(), req, nil))
	defer stop()
	if e, err, _ := next(); err != nil || !e.GetSnapshot() {
		t.Fatalf("got %v, %v; want the snapshot", e, err)
	}
	var last uint64
	take(t, next, &last, 1)
}

func TestStream(t *testing.T) {
	d, socket := sdktest.Start(t)
	c := dial(t, socket)
	create(t, c, "box1")
	stream, err := c.SubscribeSandboxEvents(t.Context(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: "box1"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if e, err := stream.Recv(); err != nil || e.GetSequence() != 1 || !e.GetReplay() {
		t.Fatalf("got %v, %v", e, err)
	}
	d.Shutdown()
	if _, err := stream.Recv(); !errors.Is(err, raw.ErrUnavailable) && !errors.Is(err, context.Canceled) && !errors.Is(err, io.EOF) {
		t.Fatalf("daemon gone: %v", err)
	}
	<-stream.Context().Done()
}
