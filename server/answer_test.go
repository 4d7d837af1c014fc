package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestLargeRequests: what was accepted can be read back by any client, alone and in a list, and what could not is refused.
func TestLargeRequests(t *testing.T) {
	t.Parallel()
	fake := actorstest.New()
	fake.Run = fake.UntilCancelled
	f := startFleet(t, actors.Config{}, fake)
	ctx := t.Context()
	create := func(id string, spec *agboxv1.CreateSpec) error {
		spec.Image = "image"
		_, err := f.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: spec})
		return err
	}
	large := func(name string) *agboxv1.ServiceSpec { // services hold most that a handle can
		envs := map[string]string{}
		for i := range 9 {
			envs[fmt.Sprintf("VARIABLE_%d", i)] = strings.Repeat("x", 100_000)
		}
		return &agboxv1.ServiceSpec{Name: name, Image: "image", Envs: envs}
	}
	f.create("plain-box", nil)
	servertest.Refused(t, create("large-box", &agboxv1.CreateSpec{OptionalServices: []*agboxv1.ServiceSpec{large("a"), large("b"), large("c")}}),
		codes.InvalidArgument, "SPEC_TOO_LARGE", "create_spec", "move large values into files and mount these")
	const boxes = 4
	for i := range boxes {
		if err := create(fmt.Sprintf("large-box-%d", i), &agboxv1.CreateSpec{Lazy: true, OptionalServices: []*agboxv1.ServiceSpec{large("a"), large("b")}}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := f.ListSandboxes(ctx, &agboxv1.ListSandboxesRequest{})
	if err != nil || len(list.Sandboxes) != boxes+1 {
		t.Fatalf("the list is refused: %v", err)
	}
	for _, box := range list.Sandboxes {
		if services := box.OptionalServices; box.Elided != (box.SandboxId != "plain-box") ||
			box.Elided && (len(services) != 2 || services[1].Name != "b" || services[1].Image != "image" || len(services[1].Envs) != 0) {
			t.Errorf("%s has in the list %v", box.SandboxId, services)
		}
	}
	one, err := f.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: "large-box-0"})
	if err != nil || one.Sandbox.Elided || len(one.Sandbox.OptionalServices[1].Envs) != 9 {
		t.Errorf("by itself it is elided: %v", err)
	}

	command := append([]string{"run"}, slices.Repeat([]string{strings.Repeat("é", 50_000)}, 10)...)
	const execs = 8
	for i := range execs {
		if _, err := f.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: "plain-box", ExecId: fmt.Sprintf("exec-%d", i), Command: command,
			EnvOverrides: map[string]string{"A": "b"}}); err != nil {
			t.Fatal(err)
		}
	}
	active, err := f.ListActiveExecs(ctx, &agboxv1.ListActiveExecsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	all, err := f.ListExecs(ctx, &agboxv1.ListExecsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for what, list := range map[string][]*agboxv1.ExecStatus{"of the active": active.Execs, "of all": all.Execs} {
		whole := 0
		for _, exec := range list {
			if !exec.Elided && slices.Equal(exec.Command, command) && exec.EnvOverrides["A"] == "b" {
				whole++
			} else if !exec.Elided || exec.Command[0] != "run" || len(exec.Command[1]) > 64 || len(exec.EnvOverrides) != 0 {
				t.Errorf("in the list %s is %.1000v", what, exec)
			}
		}
		if len(list) != execs || whole == 0 || whole == execs || list[0].Elided {
			t.Errorf("the list %s has %d execs, %d of them whole", what, len(list), whole)
		}
	}
	got, err := f.GetExec(ctx, &agboxv1.GetExecRequest{ExecId: "exec-0"})
	if err != nil || got.Exec.Elided || !slices.Equal(got.Exec.Command, command) {
		t.Errorf("by itself it is elided: %v", err)
	}
	for i := range execs {
		if _, err := f.CancelExec(ctx, &agboxv1.CancelExecRequest{ExecId: fmt.Sprintf("exec-%d", i)}); err != nil {
			t.Error(err)
		}
	}
	_, err = f.CreateExec(metadata.AppendToOutgoingContext(ctx, "agbox-request-id", strings.Repeat("x", 257)),
		&agboxv1.CreateExecRequest{SandboxId: "plain-box", Command: []string{"true"}})
	servertest.Refused(t, err, codes.InvalidArgument, "REQUEST_ID_INVALID", "agbox-request-id", "such as a UUID")
}
