package server_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestDetach: what is detached needs no holder, and its holders hear that they hold nothing any more.
func TestDetach(t *testing.T) {
	t.Parallel()
	f := startFleet(t, actors.Config{}, actorstest.New())
	lease := &agboxv1.CreateSpec{Image: "image", Lease: &agboxv1.LeaseSpec{}}
	for _, id := range []string{"box-1", "box-2"} {
		if _, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: lease}); err != nil {
			t.Fatal(err)
		}
	}
	hold := func(id string) *raw.Hold {
		hold, err := f.HoldSandbox(t.Context(), &agboxv1.HoldSandboxRequest{SandboxId: id})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(hold.Close)
		return hold
	}
	detached, removed := hold("box-1"), hold("box-2")
	for _, h := range []*raw.Hold{detached, removed} {
		if _, err := h.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := f.DetachSandbox(t.Context(), &agboxv1.DetachSandboxRequest{SandboxId: "box-1"}); err != nil {
			t.Fatal(err)
		}
	}
	f.remove("box-2")
	for _, h := range []*raw.Hold{detached, removed} {
		if _, err := h.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the hold ends with %v", err)
		}
	}
	f.create("none-1", nil)
	for _, id := range []string{"box-1", "box-2", "none-1"} {
		_, err := hold(id).Recv()
		servertest.Refused(t, err, codes.FailedPrecondition, "LEASE_NONE", "", id+" has no lease to hold")
	}
	_, err := f.DetachSandbox(t.Context(), &agboxv1.DetachSandboxRequest{SandboxId: "none-1"})
	servertest.Refused(t, err, codes.FailedPrecondition, "LEASE_NONE", "", "has no lease")
	_, err = f.DetachSandbox(t.Context(), &agboxv1.DetachSandboxRequest{SandboxId: "box-2"})
	servertest.Refused(t, err, codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "", "cannot detach")
	_, err = hold("nobody").Recv()
	servertest.Refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "")
}

// TestShutdownEndsNoLease: the streams that the daemon's end cuts off are nobody's leaving, however long that takes.
func TestShutdownEndsNoLease(t *testing.T) {
	t.Parallel()
	fake := actorstest.New()
	busy := make(chan struct{})
	fake.Before = func(ctx context.Context, call string) error {
		if call == "create slow-1" { // for which the daemon waits when it ends
			close(busy)
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
		return nil
	}
	f := startFleet(t, actors.Config{}, fake)
	create := func(id string) {
		t.Helper()
		if _, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{
			Image: "image", Lease: &agboxv1.LeaseSpec{Grace: durationpb.New(100 * time.Millisecond)}}}); err != nil {
			t.Fatal(err)
		}
	}
	create("box-1")
	hold, err := f.HoldSandbox(t.Context(), &agboxv1.HoldSandboxRequest{SandboxId: "box-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	if _, err := hold.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "slow-1", CreateSpec: &agboxv1.CreateSpec{Image: "image"}}); err != nil {
		t.Fatal(err)
	}
	<-busy
	f.stop()
	db, err := persist.Open(filepath.Join(f.dir, "ids.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	events, err := db.Events("box-1", 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range events {
		if event.GetSandboxPhase().GetReason() == "lease_ended" {
			t.Errorf("the end of the daemon ended the lease: %v", event)
		}
	}
}
