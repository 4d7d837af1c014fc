package sdk_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

// TestBulk: each call returns when all that accepted are there.
func TestBulk(t *testing.T) {
	d, socket := sdktest.Start(t)
	c := newClient(t, socket)
	mine := sdk.Selection{Labels: map[string]string{"team": "a"}}
	var ids []string
	for range 5 {
		box, err := c.CreateSandbox(t.Context(), sdk.Spec{Image: "image", Labels: mine.Labels})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, box.ID)
	}
	other, err := c.CreateSandbox(t.Context(), sdk.Spec{Image: "image"})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(ids) // newest first
	if err := c.Stop(t.Context(), ids[0]); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		got  func() ([]string, error)
		want []string
		then sdk.State
	}{
		{func() ([]string, error) { return c.StopSandboxes(t.Context(), mine) }, ids[1:], sdk.StateStopped},
		{func() ([]string, error) { return c.ResumeSandboxes(t.Context(), mine) }, ids, sdk.StateReady},
		{func() ([]string, error) { return c.StopSandboxes(t.Context(), mine, sdk.WithForce()) }, ids, sdk.StateStopped},
		{func() ([]string, error) { return c.StopSandboxes(t.Context(), mine, sdk.WithGrace(time.Second)) }, nil, sdk.StateStopped},
		{func() ([]string, error) {
			list, _, err := c.Prune(t.Context(), sdk.Pruning{Labels: mine.Labels, DryRun: true})
			return list, err
		}, ids, sdk.StateStopped},
		{func() ([]string, error) {
			list, _, err := c.Prune(t.Context(), sdk.Pruning{Labels: mine.Labels, States: []sdk.State{sdk.StateFailed}})
			return list, err
		}, nil, sdk.StateStopped},
		{func() ([]string, error) {
			list, _, err := c.Prune(t.Context(), sdk.Pruning{Labels: mine.Labels})
			return list, err
		}, ids, sdk.StateDeleted},
	} {
		got, err := step.got()
		if err != nil || !slices.Equal(got, step.want) {
			t.Fatalf("step %d answers %v, %v; want %v", i, got, err, step.want)
		}
		for _, id := range ids {
			if box, err := c.GetSandbox(t.Context(), id); err != nil || box.State != step.then {
				t.Errorf("after step %d %s is %v, %v", i, id, box.State, err)
			}
		}
	}
	for stats, err := range c.WatchStats(t.Context(), nil, 0) {
		if err != nil || stats.SandboxID != other.ID || len(stats.Containers) != 1 || stats.Containers[0].Pids != 2 {
			t.Errorf("a watch begins with %+v, %v", stats, err)
		}
		break
	}
	refuse(d, "ResumeSandboxes", sdktest.Refusal(codes.ResourceExhausted, "DISK_FULL", "the disk is full"))
	if _, err := c.ResumeSandboxes(t.Context(), mine); err == nil {
		t.Error("a refusal is not told")
	}
	d.Shutdown()
	for _, err := range c.WatchStats(t.Context(), nil, time.Second) {
		if !errors.Is(err, sdk.ErrUnavailable) {
			t.Errorf("without a daemon a watch ends with %v", err)
		}
	}
}
