package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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

// holdSocket and holdSandbox make a process of this test's binary one that holds a lease until it is killed.
const (
	holdSocket  = "AGBOX_TEST_HOLD_SOCKET"
	holdSandbox = "AGBOX_TEST_HOLD_SANDBOX"
)

func holdForever(socket, id string) error {
	client, err := raw.Dial(raw.WithSocket(socket))
	if err != nil {
		return err
	}
	hold, err := client.HoldSandbox(context.Background(), &agboxv1.HoldSandboxRequest{SandboxId: id})
	if err != nil {
		return err
	}
	for {
		if _, err := hold.Recv(); err != nil {
			return err
		}
		fmt.Println("held")
	}
}

// holder starts a process that holds the lease, and returns once it does.
func holder(t *testing.T, d *servertest.Daemon, id string) *exec.Cmd {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), holdSocket+"="+d.Socket(), holdSandbox+"="+id)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { command.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the holder says %q, %v", line, err)
	}
	return command
}

func leased(d *servertest.Daemon, grace time.Duration, onEnd string) string {
	return d.Create(&agboxv1.CreateSpec{Lease: &agboxv1.LeaseSpec{Grace: durationpb.New(grace), OnEnd: onEnd}})
}

// TestHolderIsKilled: kill -9 of the client, and nothing of the sandbox is left, or it is stopped.
func TestHolderIsKilled(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	ends := map[string]agboxv1.EventType{}
	for onEnd, end := range map[string]agboxv1.EventType{"": agboxv1.EventType_SANDBOX_DELETED, "stop": agboxv1.EventType_SANDBOX_STOPPED} {
		id := leased(d, 10*time.Second, onEnd)
		client := holder(t, d, id)
		held, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
		if err != nil || held.Sandbox.LeaseEndsAt != nil {
			t.Errorf("while it is held it is %v, %v", held, err)
		}
		client.Process.Kill()
		client.Wait()
		ends[id] = end
	}
	for id, end := range ends {
		events := d.Await(id, end)
		if last := events[len(events)-1]; last.GetSandboxPhase().Reason != "lease_ended" {
			t.Errorf("its end is told as %v", last)
		}
	}
}

// TestLeaseOverRestart: holders come back after a restart of the daemon, and who does not is gone.
func TestLeaseOverRestart(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	back := leased(d, time.Minute, "")
	gone := leased(d, 10*time.Second, "")
	client := holder(t, d, gone)
	d.Stop()
	client.Process.Kill()
	client.Wait()
	d.StartAgain()
	holder(t, d, back)
	d.Await(gone, agboxv1.EventType_SANDBOX_DELETED)
	if got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: back}); err != nil || got.Sandbox.State != ready {
		t.Errorf("the one that is held is %v, %v", got, err)
	}
}

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
		refused(t, err, codes.FailedPrecondition, "LEASE_NONE", "", id+" has no lease to hold")
	}
	_, err := f.DetachSandbox(t.Context(), &agboxv1.DetachSandboxRequest{SandboxId: "none-1"})
	refused(t, err, codes.FailedPrecondition, "LEASE_NONE", "", "has no lease")
	_, err = f.DetachSandbox(t.Context(), &agboxv1.DetachSandboxRequest{SandboxId: "box-2"})
	refused(t, err, codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "", "cannot detach")
	_, err = hold("nobody").Recv()
	refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "")
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
