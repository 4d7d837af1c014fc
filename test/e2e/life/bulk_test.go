package life_test

import (
	"slices"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestBulkDocker: containers really stop and start again.
func TestBulkDocker(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	mine := map[string]string{"team": "a"}
	ids := []string{d.Create(&agboxv1.CreateSpec{Labels: mine}), d.Create(&agboxv1.CreateSpec{Labels: mine})}
	other := d.Create(&agboxv1.CreateSpec{})
	slices.Reverse(ids) // newest first
	runs := func(want ...string) {
		t.Helper()
		for _, id := range append(ids, other) {
			found, err := d.Engine.ContainerInspect(t.Context(), "agbox-primary-"+id)
			if err != nil || found.State.Running != slices.Contains(want, id) {
				t.Errorf("%s is %+v, %v", id, found.State, err)
			}
		}
	}
	halted, err := d.StopSandboxes(t.Context(), &agboxv1.StopSandboxesRequest{LabelSelector: mine, Force: true})
	if err != nil || !slices.Equal(halted.SandboxIds, ids) {
		t.Fatalf("stopped are %v, %v; want %v", halted, err, ids)
	}
	for _, id := range ids {
		d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	}
	runs(other)
	resumed, err := d.ResumeSandboxes(t.Context(), &agboxv1.ResumeSandboxesRequest{LabelSelector: mine, States: []agboxv1.SandboxState{servertest.Stopped}})
	if err != nil || !slices.Equal(resumed.SandboxIds, ids) {
		t.Fatalf("resumed are %v, %v; want %v", resumed, err, ids)
	}
	for _, id := range ids {
		reached, err := d.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id, States: []agboxv1.SandboxState{servertest.Ready, servertest.Failed}})
		if err != nil || reached.Sandbox.State != servertest.Ready {
			t.Errorf("%s is %v, %v", id, reached, err)
		}
	}
	runs(append(ids, other)...)
}
