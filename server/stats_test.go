package server_test

import (
	"testing"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestInfoCounts: every state that there is, and the execs that run.
func TestInfoCounts(t *testing.T) {
	t.Parallel()
	fake := actorstest.New()
	fake.Run = fake.UntilCancelled
	f := startFleet(t, actors.Config{}, fake)
	each(3, "ready", func(id string) { f.create(id, nil) })
	each(2, "gone", func(id string) { f.create(id, nil); f.remove(id) })
	f.create("stopped", nil)
	if _, err := f.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: "stopped"}); err != nil {
		t.Fatal(err)
	}
	f.waitSandbox("stopped", states{servertest.Stopped}, nil, true, servertest.Stopped)
	if _, err := f.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: "ready-000", Command: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	info, err := f.Info(t.Context(), &agboxv1.InfoRequest{})
	if err != nil || len(info.Sandboxes) != 3 || info.Sandboxes["READY"] != 3 || info.Sandboxes["DELETED"] != 2 || info.Sandboxes["STOPPED"] != 1 || info.RunningExecs != 1 {
		t.Errorf("info is %v, %v", info, err)
	}
}
