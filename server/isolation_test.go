package server_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestRuntimeUnknown: a runtime that the engine does not have is refused before anything is made.
func TestRuntimeUnknown(t *testing.T) {
	t.Parallel()
	fake := actorstest.New()
	f := startServer(t, actors.Config{}, server.Config{}, fake)
	for runtime, known := range map[string]bool{"runsc": false, "runc": true, "": true} {
		_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "x", Runtime: runtime}})
		if known {
			if err != nil {
				t.Errorf("%q: %v", runtime, err)
			}
			continue
		}
		servertest.Refused(t, err, codes.FailedPrecondition, "RUNTIME_UNKNOWN", "create_spec.runtime", `no runtime "runsc"; use one of runc`)
	}
}

// TestNoRestriction: where there are no packet rules, what would take them is refused before anything is made.
func TestNoRestriction(t *testing.T) {
	t.Parallel()
	fake := actorstest.New()
	fake.NotIsolated = "the engine is elsewhere"
	f := startServer(t, actors.Config{}, server.Config{}, fake)
	allow := &agboxv1.NetworkSpec{Mode: "allow", Allow: []*agboxv1.NetworkDestination{{Cidr: "192.0.2.1"}}}
	none := &agboxv1.NetworkSpec{Mode: "none"}
	service := []*agboxv1.ServiceSpec{{Name: "db", Image: "x"}}
	for _, spec := range []*agboxv1.CreateSpec{
		{Image: "x", Network: allow}, {Image: "x", Network: allow, Lazy: true}, {Image: "x", Network: none, OptionalServices: service},
	} {
		_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: spec})
		servertest.Refused(t, err, codes.FailedPrecondition, "NETWORK_RESTRICTION_UNAVAILABLE", "create_spec.network.mode",
			"needs packet rules, and agboxd cannot set them here: the engine is elsewhere", `use "none" without services`)
	}
	if calls := fake.Calls(); len(calls) != 0 {
		t.Errorf("the runtime was asked for %v", calls)
	}
	for _, network := range []*agboxv1.NetworkSpec{nil, none, {Mode: "internet"}, {Mode: "internet", Private: true}} {
		if _, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "x", Network: network}}); err != nil {
			t.Errorf("%v: %v", network, err)
		}
	}
}
