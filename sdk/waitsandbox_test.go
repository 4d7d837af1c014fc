package sdk_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

func newClient(t *testing.T, socket string, opts ...sdk.Option) *sdk.Client {
	t.Helper()
	c, err := sdk.New(append(opts, sdk.WithSocket(socket))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestWaitSandbox: the end of a wait, a short one, and one over a restart of the daemon.
func TestWaitSandbox(t *testing.T) {
	d, socket := sdktest.Start(t)
	broken := make(chan struct{}, 1)
	c := newClient(t, socket, sdk.WithBrokenStream(func(error) {
		select {
		case broken <- struct{}{}:
		default:
		}
	}))
	box, err := c.CreateSandbox(t.Context(), sdk.Spec{Image: sdktest.ImageHold}, sdk.WithWait(false))
	if err != nil {
		t.Fatal(err)
	}
	if got, reached, err := c.WaitSandbox(t.Context(), box.ID, time.Millisecond, sdk.StateReady); reached || err != nil || got.State != sdk.StatePending {
		t.Errorf("a short wait: %v, %v, %v", got, reached, err)
	}
	type end struct {
		box     sdk.Sandbox
		reached bool
		err     error
	}
	ended := make(chan end)
	go func() {
		box, reached, err := c.WaitSandbox(t.Context(), box.ID, time.Hour, sdk.StateFailed, sdk.StateReady)
		ended <- end{box, reached, err}
	}()
	d.Shutdown()
	<-broken
	d.Release()
	if _, _, err := c.WaitSandbox(t.Context(), box.ID, time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a short wait without a daemon: %v", err)
	}
	if err := d.Serve(socket); err != nil {
		t.Fatal(err)
	}
	if end := <-ended; !end.reached || end.err != nil || end.box.State != sdk.StateReady {
		t.Errorf("a wait over a restart: %+v", end)
	}
	if err := c.Delete(t.Context(), box.ID); err != nil {
		t.Fatal(err)
	}
	if got, reached, err := c.WaitSandbox(t.Context(), box.ID, 0, sdk.StateReady); reached || err != nil || got.State != sdk.StateDeleted {
		t.Errorf("a wait in vain: %v, %v, %v", got, reached, err)
	}
	if _, _, err := c.WaitSandbox(t.Context(), "none", 0); !errors.Is(err, sdk.ErrSandboxNotFound) {
		t.Errorf("a wait for nothing: %v", err)
	}
}

func TestWatchSandboxes(t *testing.T) {
	d, socket := sdktest.Start(t)
	c := newClient(t, socket)
	mine := map[string]string{"team": "a"}
	old, err := c.CreateSandbox(t.Context(), sdk.Spec{Image: "image", Labels: mine})
	if err != nil {
		t.Fatal(err)
	}
	var got []sdk.Event
	for event, err := range c.WatchSandboxes(t.Context(), sdk.WithLabels(mine), sdk.WithSnapshots()) {
		if got = append(got, event); len(got) == 1 { // begun
			for _, labels := range []map[string]string{nil, mine} {
				if _, err := c.CreateSandbox(t.Context(), sdk.Spec{Image: "image", Labels: labels}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(got) == 3 {
			d.Shutdown()
		}
		if err != nil {
			if !errors.Is(err, sdk.ErrUnavailable) && !errors.Is(err, context.Canceled) {
				t.Errorf("the daemon's end is %v", err)
			}
			break
		}
	}
	if len(got) < 4 || got[0].SandboxID != old.ID || !got[0].Snapshot || got[0].State != sdk.StateReady ||
		got[1].SandboxID == old.ID || got[1].Snapshot || got[1].Sequence != 1 || got[2].SandboxID != got[1].SandboxID || got[2].Sequence != 2 {
		t.Errorf("events are %v", got)
	}
	for _, err := range c.WatchSandboxes(t.Context()) {
		if !errors.Is(err, sdk.ErrUnavailable) {
			t.Errorf("without a daemon: %v", err)
		}
	}
}

func TestStatsInfoExecs(t *testing.T) {
	_, socket := sdktest.Start(t)
	c := newClient(t, socket)
	box, err := c.CreateSandbox(t.Context(), sdk.Spec{Image: "image", RequiredServices: []sdk.Service{
		{Name: "db", Image: "image", Healthcheck: &sdk.Healthcheck{Test: []string{"CMD", "true"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(t.Context(), box.ID, []string{"sh", "-c", "exit 3"}); err != nil {
		t.Fatal(err)
	}
	stats, err := c.Stats(t.Context(), box.ID)
	want := sdk.Stats{CPUTime: 1500 * time.Millisecond, MemoryBytes: 3 << 20, MemoryLimitBytes: 1 << 30, Pids: 2,
		NetworkReceivedBytes: 2048, NetworkSentBytes: 1024, DiskReadBytes: 4096, DiskWrittenBytes: 8192}
	if err != nil || len(stats) != 2 || stats[0] != want || stats[1] != (sdk.Stats{Service: "db", Pids: 1}) {
		t.Errorf("stats are %+v, %v", stats, err)
	}
	info, err := c.Info(t.Context())
	if err != nil || info.Version != sdktest.Version || info.EngineVersion == "" || info.Sandboxes[sdk.StateReady] != 1 || info.SubnetsTotal != 1 {
		t.Errorf("info is %+v, %v", info, err)
	}
	other := ready(t, c)
	for _, c2 := range []struct {
		filter sdk.ExecFilter
		want   int
	}{
		{sdk.ExecFilter{}, 1},
		{sdk.ExecFilter{SandboxID: box.ID, States: []sdk.ExecState{sdk.ExecFinished}, Limit: 5}, 1},
		{sdk.ExecFilter{States: []sdk.ExecState{sdk.ExecRunning}}, 0},
		{sdk.ExecFilter{SandboxID: other.ID}, 0},
	} {
		if execs, err := c.ListExecs(t.Context(), c2.filter); err != nil || len(execs) != c2.want || c2.want == 1 && execs[0].ExitCode != 3 {
			t.Errorf("%+v: %v, %v", c2.filter, execs, err)
		}
	}
	if err := c.Stop(t.Context(), box.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stats(t.Context(), box.ID); !errors.Is(err, sdk.ErrSandboxNotReady) {
		t.Errorf("stats of a stopped one: %v", err)
	}
}
