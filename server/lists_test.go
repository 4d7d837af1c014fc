package server_test

import (
	"slices"
	"testing"

	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

func TestLists(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	ctx := t.Context()
	var ids []string
	for _, labels := range []map[string]string{{"team": "a", "n": "1"}, {"team": "b"}, {"team": "a", "n": "2"}} {
		ids = append(ids, d.Create(&agboxv1.CreateSpec{Labels: labels}))
	}
	list := func(r *agboxv1.ListSandboxesRequest) []string {
		t.Helper()
		response, err := d.ListSandboxes(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range response.Sandboxes {
			got = append(got, s.SandboxId)
		}
		return got
	}
	newest := []string{ids[2], ids[1], ids[0]}
	if got := list(&agboxv1.ListSandboxesRequest{}); !slices.Equal(got, newest) {
		t.Errorf("the list is %v, want the newest first: %v", got, newest)
	}
	if got := list(&agboxv1.ListSandboxesRequest{LabelSelector: map[string]string{"team": "a", "n": "1"}}); !slices.Equal(got, ids[:1]) {
		t.Errorf("two labels match %v", got)
	}
	deleted, err := d.DeleteSandboxes(ctx, &agboxv1.DeleteSandboxesRequest{LabelSelector: map[string]string{"team": "a"}})
	if err != nil || deleted.DeletedCount != 2 || !slices.Equal(deleted.DeletedSandboxIds, []string{ids[2], ids[0]}) {
		t.Errorf("deleted are %v, %v", deleted, err)
	}
	d.Await(ids[0], agboxv1.EventType_SANDBOX_DELETED)
	d.Await(ids[2], agboxv1.EventType_SANDBOX_DELETED)
	if got := list(&agboxv1.ListSandboxesRequest{}); !slices.Equal(got, ids[1:2]) {
		t.Errorf("afterwards there are %v", got)
	}
	if got := list(&agboxv1.ListSandboxesRequest{IncludeDeleted: true}); !slices.Equal(got, newest) {
		t.Errorf("with deleted ones there are %v", got)
	}
}
