package server_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

func (f *fleet) stopAll(labels map[string]string, states ...agboxv1.SandboxState) []string {
	f.t.Helper()
	stopped, err := f.StopSandboxes(f.t.Context(), &agboxv1.StopSandboxesRequest{LabelSelector: labels, States: states})
	if err != nil {
		f.t.Fatal(err)
	}
	return stopped.SandboxIds
}

func (f *fleet) resumeAll(labels map[string]string, states ...agboxv1.SandboxState) []string {
	f.t.Helper()
	resumed, err := f.ResumeSandboxes(f.t.Context(), &agboxv1.ResumeSandboxesRequest{LabelSelector: labels, States: states})
	if err != nil {
		f.t.Fatal(err)
	}
	return resumed.SandboxIds
}

func (f *fleet) deleteAll(labels map[string]string, states ...agboxv1.SandboxState) []string {
	f.t.Helper()
	deleted, err := f.DeleteSandboxes(f.t.Context(), &agboxv1.DeleteSandboxesRequest{LabelSelector: labels, States: states})
	if err != nil {
		f.t.Fatal(err)
	}
	if int(deleted.DeletedCount) != len(deleted.DeletedSandboxIds) {
		f.t.Errorf("%d are counted of %v", deleted.DeletedCount, deleted.DeletedSandboxIds)
	}
	return deleted.DeletedSandboxIds
}

// listed returns the ids that a list has, in its order.
func (f *fleet) listed(req *agboxv1.ListSandboxesRequest) []string {
	f.t.Helper()
	list, err := f.ListSandboxes(f.t.Context(), req)
	if err != nil {
		f.t.Fatal(err)
	}
	var ids []string
	for _, sandbox := range list.Sandboxes {
		ids = append(ids, sandbox.SandboxId)
	}
	return ids
}

// await waits until each is in the state.
func (f *fleet) await(ids []string, state agboxv1.SandboxState) {
	f.t.Helper()
	for _, id := range ids {
		f.waitSandbox(id, states{state}, nil, true, state)
	}
}

// TestStatesFilter: lists, and bulk deletion, of some states only.
func TestStatesFilter(t *testing.T) {
	t.Parallel()
	f := startFleet(t, actors.Config{}, actorstest.New())
	for _, id := range []string{"run-1", "run-2", "stop-1", "gone-1"} {
		f.create(id, mine)
	}
	f.create("other-1", nil)
	f.remove("gone-1")
	if got := f.stopAll(map[string]string{"team": "b"}); got != nil {
		t.Errorf("without a match %v are stopped", got)
	}
	if _, err := f.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: "stop-1"}); err != nil {
		t.Fatal(err)
	}
	f.await([]string{"stop-1"}, servertest.Stopped)
	for _, test := range []struct {
		request *agboxv1.ListSandboxesRequest
		want    string
	}{
		{&agboxv1.ListSandboxesRequest{}, "other-1 stop-1 run-2 run-1"},
		{&agboxv1.ListSandboxesRequest{States: states{servertest.Ready}}, "other-1 run-2 run-1"},
		{&agboxv1.ListSandboxesRequest{States: states{servertest.Stopped, servertest.Ready}, LabelSelector: mine}, "stop-1 run-2 run-1"},
		{&agboxv1.ListSandboxesRequest{States: states{servertest.Failed}}, ""},
		{&agboxv1.ListSandboxesRequest{States: states{servertest.Stopped}, IncludeDeleted: true}, "stop-1"},
		{&agboxv1.ListSandboxesRequest{States: states{servertest.Stopped, servertest.Deleted}}, "gone-1 stop-1"},
	} {
		if got := strings.Join(f.listed(test.request), " "); got != test.want {
			t.Errorf("%v lists %q, want %q", test.request, got, test.want)
		}
	}
	if got := f.deleteAll(mine, servertest.Failed, servertest.Deleted); got != nil {
		t.Errorf("%v are deleted", got)
	}
	if got := f.deleteAll(mine, servertest.Stopped); fmt.Sprint(got) != "[stop-1]" {
		t.Errorf("%v are deleted", got)
	}
	f.await([]string{"stop-1"}, servertest.Deleted)
	if got := f.listed(&agboxv1.ListSandboxesRequest{States: states{servertest.Ready}}); len(got) != 3 {
		t.Errorf("%v are left", got)
	}
}

func TestBulkRefusals(t *testing.T) {
	t.Parallel()
	f := startFleet(t, actors.Config{}, actorstest.New())
	f.create("mine-1", mine)
	unknown, none := states{servertest.Stopped, 99}, map[string]string(nil)
	for name, ask := range map[string]func(labels map[string]string, states states) error{
		"stop": func(labels map[string]string, states states) error {
			_, err := f.StopSandboxes(t.Context(), &agboxv1.StopSandboxesRequest{LabelSelector: labels, States: states})
			return err
		},
		"resume": func(labels map[string]string, states states) error {
			_, err := f.ResumeSandboxes(t.Context(), &agboxv1.ResumeSandboxesRequest{LabelSelector: labels, States: states})
			return err
		},
		"delete": func(labels map[string]string, states states) error {
			_, err := f.DeleteSandboxes(t.Context(), &agboxv1.DeleteSandboxesRequest{LabelSelector: labels, States: states})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			servertest.Refused(t, ask(none, nil), codes.InvalidArgument, "LABEL_SELECTOR_REQUIRED", "label_selector", "would match every sandbox; give at least one label")
			servertest.Refused(t, ask(map[string]string{"": "x"}, nil), codes.InvalidArgument, "LABEL_INVALID", "label_selector", "empty key")
			servertest.Refused(t, ask(mine, unknown), codes.InvalidArgument, "STATE_UNKNOWN", "states[1]", "is no state to ask for")
		})
	}
	_, err := f.ListSandboxes(t.Context(), &agboxv1.ListSandboxesRequest{States: unknown})
	servertest.Refused(t, err, codes.InvalidArgument, "STATE_UNKNOWN", "states[1]", "is no state to ask for")
	_, err = f.watch(&agboxv1.WatchSandboxesRequest{States: states{0}}).Recv()
	servertest.Refused(t, err, codes.InvalidArgument, "STATE_UNKNOWN", "states[0]", "is no state to ask for")
	_, err = f.StopSandboxes(t.Context(), &agboxv1.StopSandboxesRequest{LabelSelector: mine, Grace: durationpb.New(-1)})
	servertest.Refused(t, err, codes.InvalidArgument, "DURATION_NEGATIVE", "grace", "-1ns is negative")
	f.await([]string{"mine-1"}, servertest.Ready)
}

// TestBulk: 200 sandboxes stop, go on and go with one call each, and others do not.
func TestBulk(t *testing.T) {
	t.Parallel()
	f := startFleet(t, actors.Config{}, actorstest.New())
	const n = 200
	each(n, "mine", func(id string) { f.create(id, mine) })
	each(5, "other", func(id string) { f.create(id, map[string]string{"team": "b"}) })
	all := f.listed(&agboxv1.ListSandboxesRequest{LabelSelector: mine})
	for i, step := range []struct {
		got  func() []string
		want []string
		then agboxv1.SandboxState
	}{
		{func() []string { return f.resumeAll(mine) }, nil, servertest.Ready},
		{func() []string { return f.stopAll(mine, servertest.Stopped) }, nil, servertest.Ready},
		{func() []string { return f.stopAll(mine, servertest.Ready, servertest.Stopped) }, all, servertest.Stopped},
		{func() []string { return f.stopAll(mine) }, nil, servertest.Stopped},
		{func() []string { return f.resumeAll(mine, servertest.Ready) }, nil, servertest.Stopped},
		{func() []string { return f.resumeAll(mine) }, all, servertest.Ready},
		{func() []string { return f.deleteAll(mine) }, all, servertest.Deleted},
		{func() []string { return f.deleteAll(mine) }, nil, servertest.Deleted},
		{func() []string { return f.stopAll(mine) }, nil, servertest.Deleted},
	} {
		if got := step.got(); !slices.Equal(got, step.want) {
			t.Fatalf("step %d answers with %d ids: %v", i, len(got), got)
		}
		f.await(all, step.then)
	}
	if left := f.listed(&agboxv1.ListSandboxesRequest{States: states{servertest.Ready}}); len(left) != 5 {
		t.Errorf("%v are left", left)
	}
	if overlaps := f.fake.Overlaps(); len(overlaps) > 0 {
		t.Errorf("overlaps: %v", overlaps)
	}
}

// TestBulkRaces: stops, resumes and deletions of the same sandboxes at once, some of which are deleted alone, too. No call
// is refused, and all are gone in the end.
func TestBulkRaces(t *testing.T) {
	t.Parallel()
	f := startFleet(t, actors.Config{}, actorstest.New())
	const n = 50
	each(n, "mine", func(id string) { f.create(id, mine) })
	all := f.listed(&agboxv1.ListSandboxesRequest{LabelSelector: mine})
	var mu sync.Mutex
	accepted := map[string]bool{}
	note := func(ids []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range ids {
			accepted[id] = true
		}
	}
	var busy sync.WaitGroup
	for range 3 {
		busy.Go(func() { f.stopAll(mine) })
		busy.Go(func() { f.resumeAll(mine) })
		busy.Go(func() { note(f.deleteAll(mine)) })
	}
	busy.Go(func() { each(n/2, "mine", f.remove) })
	busy.Go(func() { note(f.prune(&agboxv1.PruneRequest{LabelSelector: mine})) })
	busy.Wait()
	f.await(all, servertest.Deleted)
	for _, id := range all {
		if !accepted[id] && id >= fmt.Sprintf("mine-%03d", n/2) { // the others may have been deleted one by one
			t.Errorf("nobody accepted the deletion of %s", id)
		}
	}
	if overlaps := f.fake.Overlaps(); len(overlaps) > 0 {
		t.Errorf("overlaps: %v", overlaps)
	}
}

// TestWatchStates: only what leads to these states is told, and only of sandboxes in one of them at first.
func TestWatchStates(t *testing.T) {
	t.Parallel()
	f := startFleet(t, actors.Config{}, actorstest.New())
	f.create("mine-1", mine)
	f.create("mine-2", mine)
	f.stopAll(mine)
	f.await([]string{"mine-1", "mine-2"}, servertest.Stopped)
	f.create("mine-3", mine)
	stream := f.watch(&agboxv1.WatchSandboxesRequest{LabelSelector: mine, States: states{servertest.Stopped, servertest.Deleted}, IncludeCurrentSnapshot: true})
	f.run("mine-3", 3)
	f.create("mine-4", mine)
	f.remove("mine-1")
	f.stopAll(mine, servertest.Ready)
	f.await([]string{"mine-3", "mine-4"}, servertest.Stopped)
	f.remove("mine-3")
	got := map[string]string{}
	for range 6 {
		event, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		kind := strings.TrimPrefix(event.EventType.String(), "SANDBOX_")
		got[event.SandboxId] += fmt.Sprintf("%s %d %v, ", kind, event.Sequence, event.Snapshot)
	}
	for id, want := range map[string]string{
		"mine-1": "STOPPED 5 true, DELETED 7 false, ",
		"mine-2": "STOPPED 5 true, ",
		"mine-3": "STOPPED 11 false, DELETED 13 false, ",
		"mine-4": "STOPPED 5 false, ",
	} {
		if got[id] != want {
			t.Errorf("%s tells %q, want %q", id, got[id], want)
		}
	}
}
