package server_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

func TestListExecs(t *testing.T) {
	t.Parallel()
	fake := actorstest.New()
	fake.Run = fake.UntilCancelled
	f := startFleet(t, actors.Config{}, fake)
	f.create("box-1", nil)
	f.create("box-2", nil)
	for i := range 6 { // one after the other, in turns
		request := &agboxv1.CreateExecRequest{SandboxId: fmt.Sprintf("box-%d", 1+i%2), ExecId: fmt.Sprintf("exec-%d", i), Command: []string{"x"}}
		if _, err := f.CreateExec(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"exec-1", "exec-4"} {
		if _, err := f.CancelExec(t.Context(), &agboxv1.CancelExecRequest{ExecId: id}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WaitExec(t.Context(), &agboxv1.WaitExecRequest{ExecId: id}); err != nil {
			t.Fatal(err)
		}
	}
	const running, finished, cancelled = agboxv1.ExecState_EXEC_STATE_RUNNING, agboxv1.ExecState_EXEC_STATE_FINISHED, agboxv1.ExecState_EXEC_STATE_CANCELLED
	for _, c := range []struct {
		sandbox string
		states  []agboxv1.ExecState
		limit   uint32
		want    []string
	}{
		{"", nil, 0, []string{"exec-5", "exec-4", "exec-3", "exec-2", "exec-1", "exec-0"}},
		{"", nil, 2, []string{"exec-5", "exec-4"}},
		{"box-1", nil, 0, []string{"exec-4", "exec-2", "exec-0"}},
		{"", []agboxv1.ExecState{running}, 3, []string{"exec-5", "exec-3", "exec-2"}},
		{"box-2", []agboxv1.ExecState{cancelled, finished}, 0, []string{"exec-1"}},
		{"", []agboxv1.ExecState{finished}, 0, nil},
	} {
		list, err := f.ListExecs(t.Context(), &agboxv1.ListExecsRequest{SandboxId: c.sandbox, States: c.states, Limit: c.limit})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, exec := range list.Execs {
			got = append(got, exec.ExecId)
			if len(c.states) > 0 && !slices.Contains(c.states, exec.State) || exec.Command[0] != "x" || exec.LastEventSequence == 0 {
				t.Errorf("of %v there is %v", c, exec)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v lists %v", c, got)
		}
	}
	_, err := f.ListExecs(t.Context(), &agboxv1.ListExecsRequest{SandboxId: "none"})
	servertest.Refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "")
	_, err = f.ListExecs(t.Context(), &agboxv1.ListExecsRequest{Limit: 10_001})
	servertest.Refused(t, err, codes.InvalidArgument, "LIMIT_TOO_LARGE", "limit", "10001 execs are too many for one answer: ask for at most 10000")
	_, err = f.ListExecs(t.Context(), &agboxv1.ListExecsRequest{States: []agboxv1.ExecState{0}})
	servertest.Refused(t, err, codes.InvalidArgument, "STATE_UNKNOWN", "states[0]", "EXEC_STATE_UNSPECIFIED is no state to ask for")
	_, err = f.ListExecs(t.Context(), &agboxv1.ListExecsRequest{States: []agboxv1.ExecState{64}})
	servertest.Refused(t, err, codes.InvalidArgument, "STATE_UNKNOWN", "states[0]", "64 is no state to ask for")
}
