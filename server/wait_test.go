package server_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

type states = []agboxv1.SandboxState

// waitSandbox fails the test unless the wait ends so.
func (f *fleet) waitSandbox(id string, wanted states, timeout *durationpb.Duration, reached bool, state agboxv1.SandboxState) {
	f.t.Helper()
	response, err := f.WaitSandbox(f.t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id, States: wanted, Timeout: timeout})
	if err != nil || response.Reached != reached || response.Sandbox.State != state || response.Sandbox.SandboxId != id {
		f.t.Errorf("a wait of %s for %v ends with %v, %v; want %v, %v", id, wanted, response, err, reached, state)
	}
}

// TestWaitSandbox: every wait without a timeout ends by itself.
func TestWaitSandbox(t *testing.T) {
	t.Parallel()
	fake := actorstest.New()
	doors := map[string]chan struct{}{"create box-1": make(chan struct{}), "stop box-1": make(chan struct{}), "remove box-1": make(chan struct{})}
	fake.Before = func(ctx context.Context, call string) error {
		if strings.HasSuffix(call, "broken") && strings.HasPrefix(call, "create") {
			return errors.New("it does not start")
		}
		if door := doors[call]; door != nil {
			select {
			case <-door:
			case <-ctx.Done():
			}
		}
		return nil
	}
	f := startFleet(t, actors.Config{}, fake)
	ask := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "box-1", CreateSpec: &agboxv1.CreateSpec{Image: "image"}})
	ask(err)
	now := durationpb.New(0)
	f.waitSandbox("box-1", states{servertest.Ready}, now, false, servertest.Pending)
	f.waitSandbox("box-1", nil, now, false, servertest.Pending)
	f.waitSandbox("box-1", states{servertest.Ready}, durationpb.New(time.Millisecond), false, servertest.Pending)
	f.waitSandbox("box-1", states{servertest.Ready, servertest.Pending}, nil, true, servertest.Pending)
	close(doors["create box-1"])
	f.waitSandbox("box-1", states{servertest.Failed, servertest.Ready}, nil, true, servertest.Ready)
	f.waitSandbox("box-1", nil, nil, true, servertest.Ready)

	_, err = f.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: "box-1"})
	ask(err)
	f.waitSandbox("box-1", states{servertest.Ready}, nil, true, servertest.Ready)
	f.waitSandbox("box-1", nil, now, false, servertest.Ready)
	close(doors["stop box-1"])
	f.waitSandbox("box-1", nil, nil, true, servertest.Stopped)
	f.waitSandbox("box-1", states{servertest.Ready}, now, false, servertest.Stopped)

	_, err = f.DeleteSandbox(t.Context(), &agboxv1.DeleteSandboxRequest{SandboxId: "box-1"})
	ask(err)
	const deleting = agboxv1.SandboxState_SANDBOX_STATE_DELETING
	f.waitSandbox("box-1", states{servertest.Ready, servertest.Stopped}, nil, false, deleting)
	f.waitSandbox("box-1", states{servertest.Deleted}, now, false, deleting)
	var resting sync.WaitGroup
	resting.Go(func() { f.waitSandbox("box-1", nil, nil, true, servertest.Deleted) })
	f.waitSandbox("box-1", nil, durationpb.New(10*time.Millisecond), false, deleting)
	close(doors["remove box-1"])
	resting.Wait()
	f.waitSandbox("box-1", states{servertest.Deleted}, nil, true, servertest.Deleted)
	f.waitSandbox("box-1", nil, nil, true, servertest.Deleted)
	f.waitSandbox("box-1", states{servertest.Failed}, nil, false, servertest.Deleted)

	_, err = f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "broken", CreateSpec: &agboxv1.CreateSpec{Image: "image"}})
	ask(err)
	f.waitSandbox("broken", states{servertest.Ready}, nil, false, servertest.Failed)
	f.waitSandbox("broken", states{servertest.Deleted}, now, false, servertest.Failed)
	f.waitSandbox("broken", nil, nil, true, servertest.Failed)

	_, err = f.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: "none"})
	servertest.Refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "")
	_, err = f.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: "box-1", States: states{servertest.Ready, 0}})
	servertest.Refused(t, err, codes.InvalidArgument, "STATE_UNKNOWN", "states[1]", "SANDBOX_STATE_UNSPECIFIED is no state to ask for")
	_, err = f.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: "box-1", States: states{99}})
	servertest.Refused(t, err, codes.InvalidArgument, "STATE_UNKNOWN", "states[0]", "99 is no state to ask for")
	_, err = f.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: "box-1", Timeout: durationpb.New(-1)})
	servertest.Refused(t, err, codes.InvalidArgument, "DURATION_NEGATIVE", "timeout", "-1ns is negative")
}

// TestWaitExec: the end wakes all who wait, and the end of the daemon those who are left.
func TestWaitExec(t *testing.T) {
	t.Parallel()
	fake := actorstest.New()
	fake.Run = fake.UntilCancelled
	f := startFleet(t, actors.Config{}, fake)
	f.create("box-1", nil)
	for _, id := range []string{"exec-1", "exec-2"} {
		if _, err := f.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: "box-1", ExecId: id, Command: []string{"x"}}); err != nil {
			t.Fatal(err)
		}
	}
	early, err := f.WaitExec(t.Context(), &agboxv1.WaitExecRequest{ExecId: "exec-1", Timeout: durationpb.New(time.Millisecond)})
	if err != nil || early.Ended || early.Exec.State != agboxv1.ExecState_EXEC_STATE_RUNNING {
		t.Errorf("a short wait ends with %v, %v", early, err)
	}
	type end struct {
		response *agboxv1.WaitExecResponse
		err      error
	}
	ends := make(chan end)
	const waiters = 10
	for range waiters {
		go func() {
			response, err := f.WaitExec(t.Context(), &agboxv1.WaitExecRequest{ExecId: "exec-1"})
			ends <- end{response, err}
		}()
	}
	if _, err := f.CancelExec(t.Context(), &agboxv1.CancelExecRequest{ExecId: "exec-1"}); err != nil {
		t.Fatal(err)
	}
	for range waiters {
		if end := <-ends; end.err != nil || !end.response.Ended || end.response.Exec.State != agboxv1.ExecState_EXEC_STATE_CANCELLED || end.response.Exec.ExecId != "exec-1" {
			t.Errorf("a wait ends with %v, %v", end.response, end.err)
		}
	}
	_, err = f.WaitExec(t.Context(), &agboxv1.WaitExecRequest{ExecId: "none"})
	servertest.Refused(t, err, codes.NotFound, "EXEC_NOT_FOUND", "")
	_, err = f.WaitExec(t.Context(), &agboxv1.WaitExecRequest{ExecId: "exec-1", Timeout: durationpb.New(-1)})
	servertest.Refused(t, err, codes.InvalidArgument, "DURATION_NEGATIVE", "timeout", "-1ns is negative")
	// All who looked so far have their answers: the next name is of the wait that begins now.
	select {
	case <-f.looked:
	default:
	}
	go func() {
		_, err := f.WaitExec(t.Context(), &agboxv1.WaitExecRequest{ExecId: "exec-2"})
		ends <- end{err: err}
	}()
	<-f.looked
	f.stop()
	servertest.Refused(t, (<-ends).err, codes.Unavailable, "DAEMON_SHUTTING_DOWN", "")
}
