package server_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestSandboxLogRefusals: and a sandbox that was never made has logs without anything in them.
func TestSandboxLogRefusals(t *testing.T) {
	t.Parallel()
	f := startFleet(t, actors.Config{}, actorstest.New())
	f.create("plain-box", nil)
	if _, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "served-box", CreateSpec: &agboxv1.CreateSpec{
		Image: "image", Lazy: true, OptionalServices: []*agboxv1.ServiceSpec{{Name: "db", Image: "image"}}}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		req           *agboxv1.ReadSandboxLogRequest
		code          codes.Code
		reason, field string
		words         string
	}{
		{&agboxv1.ReadSandboxLogRequest{SandboxId: "never-was"}, codes.NotFound, "SANDBOX_NOT_FOUND", "", "never-was"},
		{&agboxv1.ReadSandboxLogRequest{SandboxId: "plain-box", Source: "syslog"}, codes.InvalidArgument, "SANDBOX_LOG_SOURCE_INVALID", "source",
			`"syslog" is no log of a sandbox: use operations, stdout, stderr or service`},
		{&agboxv1.ReadSandboxLogRequest{SandboxId: "plain-box", ServiceName: "db"}, codes.InvalidArgument, "SERVICE_NAME_INVALID", "service_name",
			`"db" is given with source "": use source service, or leave it out`},
		{&agboxv1.ReadSandboxLogRequest{SandboxId: "plain-box", Source: "service"}, codes.InvalidArgument, "SERVICE_NAME_INVALID", "service_name",
			"name one of the sandbox's"},
		{&agboxv1.ReadSandboxLogRequest{SandboxId: "plain-box", Source: "service", ServiceName: "db"}, codes.NotFound, "SERVICE_NOT_FOUND", "service_name",
			`sandbox plain-box has no service "db": it has none`},
		{&agboxv1.ReadSandboxLogRequest{SandboxId: "served-box", Source: "service", ServiceName: "db2"}, codes.NotFound, "SERVICE_NOT_FOUND", "service_name",
			`has no service "db2": it has db`},
		{&agboxv1.ReadSandboxLogRequest{SandboxId: "served-box", Source: "service", ServiceName: "db"}, codes.FailedPrecondition, "SERVICE_NOT_MADE", "service_name",
			"while sandbox served-box is DORMANT"},
	} {
		servertest.Refused(t, servertest.ReadSandboxLog(t, f.Client, c.req).Next(), c.code, c.reason, c.field, c.words)
	}
	var followers []*servertest.SandboxLogReader
	for _, source := range []string{"operations", "stdout", "stderr"} {
		req := &agboxv1.ReadSandboxLogRequest{SandboxId: "served-box", Source: source}
		if got := servertest.ReadSandboxLog(t, f.Client, req).End(); len(strings.Join(slices.Collect(maps.Values(got)), "")) != 0 {
			t.Errorf("%s of a dormant sandbox is %q", source, got)
		}
		req.Follow = true
		followers = append(followers, servertest.ReadSandboxLog(t, f.Client, req))
	}
	f.remove("served-box")
	for _, follower := range followers {
		if got := follower.End()[""]; got != "" {
			t.Errorf("of a dormant sandbox was told %q", got)
		}
	}
}
