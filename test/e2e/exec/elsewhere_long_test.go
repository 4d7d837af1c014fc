//go:build long

package exec_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/chaos"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestLongElsewhere: an engine whose bridges are in another network namespace gets no sandbox that needs packet rules, even
// before anything tells that they are, and Ping says so from then on.
func TestLongElsewhere(t *testing.T) {
	engine, image := privateEngine(t)
	d := servertest.Start(t, func(c *dockerrt.Config) { c.Host = engine })
	create := func(network *agboxv1.NetworkSpec) (*agboxv1.CreateSandboxResponse, error) {
		return d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: image, Network: network}})
	}
	allow := &agboxv1.NetworkSpec{Mode: "allow", Allow: []*agboxv1.NetworkDestination{{Cidr: "192.0.2.1"}}}
	first, err := create(allow)
	if err != nil {
		t.Fatal(err)
	}
	events := d.AwaitMatch(first.Sandbox.SandboxId, 0, func(e *agboxv1.SandboxEvent) bool {
		return e.EventType == agboxv1.EventType_SANDBOX_FAILED || e.EventType == agboxv1.EventType_SANDBOX_READY
	})
	if failed := events[len(events)-1].GetSandboxPhase(); failed.GetErrorCode() != "NETWORK_RESTRICTION_UNAVAILABLE" {
		t.Errorf("the first ends with %v", events[len(events)-1])
	}
	refusedNow := func(when string) {
		t.Helper()
		_, err := create(allow)
		servertest.Refused(t, err, codes.FailedPrecondition, "NETWORK_RESTRICTION_UNAVAILABLE", "create_spec.network.mode", "another network namespace")
		ping, err := d.Ping(t.Context(), &agboxv1.PingRequest{})
		if err != nil || ping.Isolated || !strings.Contains(ping.IsolationProblem, "another network namespace") {
			t.Errorf("%s: %v, %v", when, ping, err)
		}
	}
	refusedNow("after the first")
	for _, network := range []*agboxv1.NetworkSpec{nil, {Mode: "none"}} {
		d.Create(&agboxv1.CreateSpec{Image: image, Network: network})
	}
	d.Restart()
	refusedNow("after a restart")
}

// privateEngine starts an engine of the test's own, and returns its address and the image of busybox that it has.
func privateEngine(t *testing.T) (host, image string) {
	t.Helper()
	if os.Getuid() != 0 {
		skiplog.Skip(t, "only root can run an engine of its own")
	}
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	engine, err := chaos.NewEngine(context.Background(), filepath.Join(dir, "e"), true)
	t.Cleanup(func() {
		if err := engine.End(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	api, err := engine.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	return engine.Host(), dockertest.TinyImage(t, api, dockertest.Busybox)
}
