package life_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

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
	if got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: back}); err != nil || got.Sandbox.State != servertest.Ready {
		t.Errorf("the one that is held is %v, %v", got, err)
	}
}
