package raw_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"path/filepath"
	"testing"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/sdk/sdktest"
	"google.golang.org/protobuf/types/known/durationpb"
)

func create(t *testing.T, c *raw.Client, id string) {
	t.Helper()
	_, err := c.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: sdktest.ImageHold}})
	if err != nil {
		t.Fatal(err)
	}
}

// happen has one more event recorded.
func happen(t *testing.T, c *raw.Client, id string) {
	t.Helper()
	if _, err := c.ExtendSandbox(t.Context(), &agboxv1.ExtendSandboxRequest{SandboxId: id, MaxDuration: durationpb.New(time.Hour)}); err != nil {
		t.Fatal(err)
	}
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
	breaks := 0
	c, err := raw.Dial(raw.WithSocket(socket), raw.WithBrokenStream(func(error) { breaks++ }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	ends := make(chan struct{})
	d.OnCommand(func(context.Context, *sdktest.Command) int { <-ends; return 0 })
	create(t, c, "box1")
	d.Release()
	next, stop := iter.Pull2(c.Follow(t.Context(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: "box1"}))
	defer stop()
	var last uint64
	take(t, next, &last, 3)
	for range 3 {
		happen(t, c, "box1")
		take(t, next, &last, 1)
		// What is recorded last may be on its way when the daemon ends; the command ends while there is none.
		if _, err := c.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: "box1", Command: []string{"x"}}); err != nil {
			t.Fatal(err)
		}
		d.Shutdown()
		ends <- struct{}{}
		if err := d.Serve(socket); err != nil {
			t.Fatal(err)
		}
		take(t, next, &last, 2)
	}
	if breaks == 0 {
		t.Error("no break was told")
	}
	if _, err := c.DeleteSandbox(t.Context(), &agboxv1.DeleteSandboxRequest{SandboxId: "box1"}); err != nil {
		t.Fatal(err)
	}
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
		for _, err := range c.Follow(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: from}) {
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
	c, err := raw.Dial(raw.WithSocket(socket), raw.WithBrokenStream(func(error) { cancel() }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req := &agboxv1.SubscribeSandboxEventsRequest{SandboxId: "box1"}
	next, stop := iter.Pull2(c.Follow(ctx, req))
	defer stop()
	var last uint64
	take(t, next, &last, 2)
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
	next, stop := iter.Pull2(c.Follow(t.Context(), req))
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
	for err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, raw.ErrUnavailable) && !errors.Is(err, context.Canceled) && !errors.Is(err, io.EOF) {
		t.Fatalf("daemon gone: %v", err)
	}
	<-stream.Context().Done()
}
