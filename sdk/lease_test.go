package sdk_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

// TestCreateHeld: the sandbox is held before it is READY, and stays so when the wait fails.
func TestCreateHeld(t *testing.T) {
	c, d, _ := start(t)
	box, hold, err := c.CreateHeld(t.Context(), sdk.Spec{Image: "debian"})
	if err != nil || box.State != sdk.StateReady {
		t.Errorf("it is %v, %v", box, err)
	}
	if err := hold.Close(); err != nil {
		t.Error(err)
	}
	box, hold, err = c.CreateHeld(t.Context(), sdk.Spec{Image: sdktest.ImageBroken})
	if _, failed := errors.AsType[*sdk.SandboxFailedError](err); !failed || box.ID == "" || hold == nil {
		t.Errorf("a broken one is %v, %v, held by %v", box, err, hold)
	}
	hold.Close()
	if _, hold, err := c.CreateHeld(t.Context(), sdk.Spec{}); err == nil || hold != nil {
		t.Errorf("a refused one is held by %v, %v", hold, err)
	}
	refuse(d, "HoldSandbox", sdktest.Refusal(codes.FailedPrecondition, "LEASE_NONE", "nothing to hold"))
	if box, hold, err := c.CreateHeld(t.Context(), sdk.Spec{Image: "debian"}); !errors.Is(err, sdk.ErrNoLease) || hold != nil || box.ID == "" {
		t.Errorf("one that cannot be held is %v, %v, %v", box, hold, err)
	}
}

// TestHold: over a restart of the daemon, until the sandbox is detached, the program lets go, or the daemon refuses.
func TestHold(t *testing.T) {
	c, d, socket := start(t)
	hold := func(id string) *sdk.Hold {
		t.Helper()
		if _, err := c.CreateSandbox(t.Context(), sdk.Spec{Image: "debian", Lease: &sdk.Lease{}}, sdk.WithSandboxID(id)); err != nil {
			t.Fatal(err)
		}
		h, err := c.Hold(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	detached, closed, refused := hold("box1"), hold("box2"), hold("box3")
	if err := closed.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Detach(t.Context(), "box1"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(detached.Wait(), detached.Close()); err != nil {
		t.Errorf("the hold of what was detached ends with %v", err)
	}
	d.Shutdown()
	if err := d.Serve(socket); err != nil {
		t.Fatal(err)
	}
	refuse(d, "HoldSandbox", sdktest.Refusal(codes.FailedPrecondition, "LEASE_NONE", "nothing to hold"))
	d.Shutdown()
	if err := d.Serve(socket); err != nil {
		t.Fatal(err)
	}
	if err := refused.Wait(); !errors.Is(err, sdk.ErrNoLease) {
		t.Errorf("a refused hold ends with %v", err)
	}
	if _, err := c.Hold(t.Context(), "box3"); !errors.Is(err, sdk.ErrNoLease) {
		t.Errorf("a hold is refused with %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Hold(ctx, "box3"); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context has ended a hold is %v", err)
	}
}
