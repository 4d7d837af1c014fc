package server_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// prune returns what is or would be deleted, by id.
func (f *fleet) prune(req *agboxv1.PruneRequest) []string {
	f.t.Helper()
	pruned, err := f.Prune(f.t.Context(), req)
	if err != nil {
		f.t.Fatal(err)
	}
	return slices.Sorted(slices.Values(pruned.SandboxIds))
}

// startEnded has two READY sandboxes, two STOPPED and two FAILED ones, one of each with the labels of mine.
func startEnded(t *testing.T) *fleet {
	fake := actorstest.New()
	fake.Before = func(_ context.Context, call string) error {
		if strings.HasPrefix(call, "create failed") {
			return errors.New("it does not start")
		}
		return nil
	}
	f := startFleet(t, actors.Config{}, fake)
	for _, id := range []string{"ready", "failed", "stopped"} {
		f.create(id+"-mine", mine)
		f.create(id+"-other", map[string]string{"kind": id})
	}
	f.stopAll(map[string]string{"kind": "stopped"})
	if _, err := f.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: "stopped-mine"}); err != nil {
		t.Fatal(err)
	}
	f.await([]string{"stopped-mine", "stopped-other"}, servertest.Stopped)
	f.await([]string{"failed-mine", "failed-other"}, servertest.Failed)
	return f
}

func TestPrune(t *testing.T) {
	t.Parallel()
	f := startEnded(t)
	before, err := f.ListSandboxes(t.Context(), &agboxv1.ListSandboxesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	hour, short := durationpb.New(time.Hour), durationpb.New(time.Nanosecond)
	for _, test := range []struct {
		request *agboxv1.PruneRequest
		want    string
	}{
		{&agboxv1.PruneRequest{}, "failed-mine failed-other stopped-mine stopped-other"},
		{&agboxv1.PruneRequest{LabelSelector: mine}, "failed-mine stopped-mine"},
		{&agboxv1.PruneRequest{States: states{servertest.Failed}, OlderThan: short}, "failed-mine failed-other"},
		{&agboxv1.PruneRequest{States: states{servertest.Ready, servertest.Stopped}, LabelSelector: mine}, "ready-mine stopped-mine"},
		{&agboxv1.PruneRequest{OlderThan: hour}, ""},
	} {
		test.request.DryRun = true
		if got := strings.Join(f.prune(test.request), " "); got != test.want {
			t.Errorf("%v would delete %q, want %q", test.request, got, test.want)
		}
	}
	after, err := f.ListSandboxes(t.Context(), &agboxv1.ListSandboxesRequest{})
	if err != nil || !proto.Equal(before, after) {
		t.Errorf("the dry runs leave %v, %v; there was %v", after, err, before)
	}
	if got := f.prune(&agboxv1.PruneRequest{OlderThan: hour}); got != nil {
		t.Errorf("of this hour %v are deleted", got)
	}
	if got := f.prune(&agboxv1.PruneRequest{LabelSelector: mine, OlderThan: short}); strings.Join(got, " ") != "failed-mine stopped-mine" {
		t.Errorf("%v are deleted", got)
	}
	f.await([]string{"failed-mine", "stopped-mine"}, servertest.Deleted)
	if got := f.prune(&agboxv1.PruneRequest{}); strings.Join(got, " ") != "failed-other stopped-other" {
		t.Errorf("then %v are deleted", got)
	}
	f.await([]string{"failed-other", "stopped-other"}, servertest.Deleted)
	f.await([]string{"ready-mine", "ready-other"}, servertest.Ready)
	if got := f.prune(&agboxv1.PruneRequest{}); got != nil {
		t.Errorf("at last %v are deleted", got)
	}
}

func TestPruneRefusals(t *testing.T) {
	t.Parallel()
	f := startEnded(t)
	for _, state := range []agboxv1.SandboxState{servertest.Pending, agboxv1.SandboxState_SANDBOX_STATE_DELETING, servertest.Deleted} {
		_, err := f.Prune(t.Context(), &agboxv1.PruneRequest{States: states{servertest.Stopped, state}})
		servertest.Refused(t, err, codes.InvalidArgument, "PRUNE_STATE_INVALID", "states[1]", "sandboxes cannot be pruned", "name another state")
	}
	_, err := f.Prune(t.Context(), &agboxv1.PruneRequest{States: states{99}})
	servertest.Refused(t, err, codes.InvalidArgument, "STATE_UNKNOWN", "states[0]", "is no state to ask for")
	_, err = f.Prune(t.Context(), &agboxv1.PruneRequest{OlderThan: durationpb.New(-time.Hour)})
	servertest.Refused(t, err, codes.InvalidArgument, "DURATION_NEGATIVE", "older_than", "-1h0m0s is negative")
	_, err = f.Prune(t.Context(), &agboxv1.PruneRequest{LabelSelector: map[string]string{"": "x"}})
	servertest.Refused(t, err, codes.InvalidArgument, "LABEL_INVALID", "label_selector", "empty key")
	if got := f.listed(&agboxv1.ListSandboxesRequest{}); len(got) != 6 {
		t.Errorf("%v are left", got)
	}
}

// TestPruneSnapshots: those that no sandbox was made from, with the labels, and none without being asked for.
func TestPruneSnapshots(t *testing.T) {
	t.Parallel()
	f := startEnded(t)
	for id, labels := range map[string]map[string]string{"snap-mine": mine, "snap-other": nil, "snap-used": mine} {
		if _, err := f.SnapshotSandbox(t.Context(), &agboxv1.SnapshotSandboxRequest{SandboxId: "ready-mine", SnapshotId: id, Labels: labels}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "from-snapshot", SnapshotId: "snap-used"}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ForkSandbox(t.Context(), &agboxv1.ForkSandboxRequest{SandboxId: "ready-mine", ForkId: "the-fork"}); err != nil {
		t.Fatal(err)
	}
	f.await([]string{"from-snapshot", "the-fork"}, servertest.Ready)
	for _, test := range []struct {
		request *agboxv1.PruneRequest
		want    string
	}{
		{&agboxv1.PruneRequest{DryRun: true}, ""},
		{&agboxv1.PruneRequest{DryRun: true, Snapshots: true}, "snap-mine snap-other"},
		{&agboxv1.PruneRequest{Snapshots: true, OlderThan: durationpb.New(time.Hour)}, ""},
		{&agboxv1.PruneRequest{Snapshots: true, LabelSelector: mine}, "snap-mine"},
		{&agboxv1.PruneRequest{Snapshots: true}, "snap-other"},
	} {
		pruned, err := f.Prune(t.Context(), test.request)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(slices.Sorted(slices.Values(pruned.SnapshotIds)), " "); got != test.want {
			t.Errorf("%v prunes %q, want %q", test.request, got, test.want)
		}
	}
	left, err := f.ListSnapshots(t.Context(), &agboxv1.ListSnapshotsRequest{})
	if err != nil || len(left.Snapshots) != 2 {
		t.Errorf("%v are left, %v", left, err)
	}
}
