package server_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/dockerrt/dockertest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/server/servertest"
)

// refused fails the test unless err is a status with this code and reason, and, when field is not empty, that field.
func refused(t *testing.T, err error, code codes.Code, reason, field string) {
	t.Helper()
	failure, ok := errors.AsType[*raw.Error](err)
	if !ok {
		t.Errorf("got %v, want %v %s", err, code, reason)
		return
	}
	if failure.Code != code || failure.Reason != reason || failure.Metadata["field"] != field {
		t.Errorf("got %v %s with field %q (%s), want %v %s with field %q", failure.Code, failure.Reason,
			failure.Metadata["field"], failure.Message, code, reason, field)
	}
	if strings.Contains(failure.Message, "%!") || failure.Message == "" {
		t.Errorf("the message is %q", failure.Message)
	}
}

// TestBadCreateIsRefused: each kind of bad input of the contract has its reason and names its field, and nothing is
// created.
func TestBadCreateIsRefused(t *testing.T) {
	d := servertest.Start(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	mount := func(source, target string) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Image: d.Image, Mounts: []*agboxv1.MountSpec{{Source: dir, Target: "/one"}, {Source: source, Target: target}}}
	}
	copied := func(source, target string) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Image: d.Image, Copies: []*agboxv1.CopySpec{{Source: source, Target: target}}}
	}
	required := func(s ...*agboxv1.ServiceSpec) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Image: d.Image, RequiredServices: s}
	}
	optional := func(s ...*agboxv1.ServiceSpec) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Image: d.Image, OptionalServices: s}
	}
	healthy := &agboxv1.HealthcheckConfig{Test: []string{"CMD", "true"}}
	check := func(test ...string) *agboxv1.HealthcheckConfig { return &agboxv1.HealthcheckConfig{Test: test} }
	for name, bad := range map[string]struct {
		spec          *agboxv1.CreateSpec
		yaml          string
		reason, field string
	}{
		"no image":              {&agboxv1.CreateSpec{}, "", "IMAGE_REQUIRED", "create_spec.image"},
		"relative source":       {mount("here", "/two"), "", "SOURCE_NOT_ABSOLUTE", "create_spec.mounts[1].source"},
		"relative target":       {mount(dir, "two"), "", "TARGET_NOT_ABSOLUTE", "create_spec.mounts[1].target"},
		"symlink":               {mount(link, "/two"), "", "SOURCE_SYMLINK", "create_spec.mounts[1].source"},
		"missing":               {mount(dir+"/none", "/two"), "", "SOURCE_NOT_FOUND", "create_spec.mounts[1].source"},
		"a device":              {mount("/dev/null", "/two"), "", "SOURCE_PROTECTED", "create_spec.mounts[1].source"},
		"docker's socket":       {mount("/var/run/docker.sock", "/two"), "", "", "create_spec.mounts[1].source"},
		"target twice":          {mount(file, "/one/"), "", "TARGET_REPEATED", "create_spec.mounts[1].target"},
		"relative copy source":  {copied("here", "/two"), "", "SOURCE_NOT_ABSOLUTE", "create_spec.copies[0].source"},
		"relative copy target":  {copied(dir, "two"), "", "TARGET_NOT_ABSOLUTE", "create_spec.copies[0].target"},
		"unknown tool":          {&agboxv1.CreateSpec{Image: d.Image, BuiltinTools: []string{"git", "hammer"}}, "", "BUILTIN_TOOL_UNKNOWN", "create_spec.builtin_tools[1]"},
		"repeated tool":         {&agboxv1.CreateSpec{Image: d.Image, BuiltinTools: []string{"npm", "npm"}}, "", "BUILTIN_TOOL_REPEATED", "create_spec.builtin_tools[1]"},
		"missing tool":          {&agboxv1.CreateSpec{Image: d.Image, BuiltinTools: []string{"claude"}}, "", "BUILTIN_TOOL_SOURCE_MISSING", "create_spec.builtin_tools[0]"},
		"service without name":  {required(&agboxv1.ServiceSpec{Image: "i", Healthcheck: healthy}), "", "SERVICE_NAME_REQUIRED", "create_spec.required_services[0].name"},
		"service without image": {required(&agboxv1.ServiceSpec{Name: "db", Healthcheck: healthy}), "", "SERVICE_IMAGE_REQUIRED", "create_spec.required_services[0].image"},
		"service twice": {required(&agboxv1.ServiceSpec{Name: "db", Image: "i", Healthcheck: healthy},
			&agboxv1.ServiceSpec{Name: "db", Image: "i", Healthcheck: healthy}), "", "SERVICE_NAME_REPEATED", "create_spec.required_services[1].name"},
		"required without healthcheck": {required(&agboxv1.ServiceSpec{Name: "db", Image: "i"}), "", "HEALTHCHECK_REQUIRED", "create_spec.required_services[0].healthcheck"},
		"hook without healthcheck": {optional(&agboxv1.ServiceSpec{Name: "db", Image: "i", PostStartOnPrimary: []string{"true"}}), "",
			"HEALTHCHECK_REQUIRED", "create_spec.optional_services[0].healthcheck"},
		"empty test":      {required(&agboxv1.ServiceSpec{Name: "db", Image: "i", Healthcheck: check()}), "", "HEALTHCHECK_TEST_INVALID", "create_spec.required_services[0].healthcheck.test"},
		"test of a shell": {required(&agboxv1.ServiceSpec{Name: "db", Image: "i", Healthcheck: check("true")}), "", "HEALTHCHECK_TEST_INVALID", "create_spec.required_services[0].healthcheck.test"},
		"required NONE":   {required(&agboxv1.ServiceSpec{Name: "db", Image: "i", Healthcheck: check("NONE")}), "", "HEALTHCHECK_TEST_INVALID", "create_spec.required_services[0].healthcheck.test"},
		"negative duration": {&agboxv1.CreateSpec{Image: d.Image, IdleTtl: durationpb.New(-time.Second)}, "",
			"DURATION_NEGATIVE", "create_spec.idle_ttl"},
		"unknown YAML key": {nil, "image: x\nimagee: y\n", "CONFIG_YAML_UNKNOWN_KEY", "config_yaml"},
		"not YAML":         {nil, "image: [", "CONFIG_YAML_SYNTAX", "config_yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "bad-create", CreateSpec: bad.spec, ConfigYaml: []byte(bad.yaml)})
			reason := bad.reason
			if failure, ok := errors.AsType[*raw.Error](err); ok && reason == "" {
				reason = failure.Reason
			}
			refused(t, err, codes.InvalidArgument, reason, bad.field)
		})
	}
	for _, id := range []string{"abc", "-abcd", "abcd-", "ab/cd", "ab cd", strings.Repeat("a", 201), "ab\x00cd"} {
		_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: d.Image}})
		refused(t, err, codes.InvalidArgument, "INVALID_SANDBOX_ID", "sandbox_id")
	}
	list, err := d.ListSandboxes(t.Context(), &agboxv1.ListSandboxesRequest{IncludeDeleted: true})
	if err != nil || len(list.Sandboxes) != 0 {
		t.Errorf("refused creates left %v, %v", list, err)
	}
	dockertest.Leftovers(t, d.Engine, "bad-create")
	if _, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "bad-create", CreateSpec: &agboxv1.CreateSpec{Image: d.Image}}); err != nil {
		t.Errorf("the id of refused creates is not free: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	d := servertest.Start(t)
	ctx := t.Context()
	id := d.Create(&agboxv1.CreateSpec{})
	exec := func(sandbox, exec string, command ...string) error {
		_, err := d.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: sandbox, ExecId: exec, Command: command})
		return err
	}
	create := func(id string) error {
		_, err := d.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: d.Image}})
		return err
	}
	if err := exec(id, "exec-1", "true"); err != nil {
		t.Fatal(err)
	}
	d.ExecEnd(id, "exec-1")

	_, err := d.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: "nobody"})
	refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "")
	_, err = d.StopSandbox(ctx, &agboxv1.StopSandboxRequest{SandboxId: "nobody"})
	refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "")
	_, err = d.GetExec(ctx, &agboxv1.GetExecRequest{ExecId: "nothing"})
	refused(t, err, codes.NotFound, "EXEC_NOT_FOUND", "")
	_, err = d.CancelExec(ctx, &agboxv1.CancelExecRequest{ExecId: "nothing"})
	refused(t, err, codes.NotFound, "EXEC_NOT_FOUND", "")
	_, err = d.CancelExec(ctx, &agboxv1.CancelExecRequest{ExecId: "exec-1"})
	refused(t, err, codes.FailedPrecondition, "EXEC_ALREADY_TERMINAL", "")
	refused(t, exec("nobody", "", "true"), codes.NotFound, "SANDBOX_NOT_FOUND", "")
	refused(t, exec(id, "exec-1", "true"), codes.AlreadyExists, "EXEC_ID_ALREADY_EXISTS", "")
	refused(t, exec(id, "exec-2"), codes.InvalidArgument, "COMMAND_REQUIRED", "command")
	refused(t, exec(id, "x", "true"), codes.InvalidArgument, "INVALID_EXEC_ID", "exec_id")
	refused(t, create(id), codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS", "")
	_, err = d.ResumeSandbox(ctx, &agboxv1.ResumeSandboxRequest{SandboxId: id})
	refused(t, err, codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "")
	_, err = d.DeleteSandboxes(ctx, &agboxv1.DeleteSandboxesRequest{})
	refused(t, err, codes.InvalidArgument, "LABEL_SELECTOR_REQUIRED", "label_selector")
	stream, err := d.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: 99})
	if err == nil {
		_, err = stream.Recv()
		stream.Close()
	}
	refused(t, err, codes.OutOfRange, "SANDBOX_EVENT_SEQUENCE_EXPIRED", "")

	d.Restart()
	refused(t, create(id), codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS", "")
	if _, err := d.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_DELETED)
	refused(t, create(id), codes.AlreadyExists, "SANDBOX_ID_ALREADY_EXISTS", "")
	refused(t, exec(id, "exec-3", "true"), codes.FailedPrecondition, "SANDBOX_NOT_READY", "")
	if _, err := d.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id}); err != nil {
		t.Errorf("a second delete: %v", err)
	}
}

// TestForeignObjectsAreLeftAlone: a name that somebody else holds is a conflict, and what is theirs stays.
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	d := servertest.Start(t)
	ctx := context.Background()
	created, err := d.Engine.ContainerCreate(ctx, &container.Config{Image: d.Image}, nil, nil, nil, "agbox-primary-foreign-container")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Engine.ContainerRemove(ctx, created.ID, container.RemoveOptions{Force: true}) })
	net, err := d.Engine.NetworkCreate(ctx, "agbox-net-foreign-network", network.CreateOptions{
		IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: "10.216.0.0/28"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Engine.NetworkRemove(ctx, net.ID) })
	for _, id := range []string{"foreign-container", "foreign-network"} {
		_, err := d.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: d.Image}})
		refused(t, err, codes.AlreadyExists, "SANDBOX_CONFLICT", "")
	}
	if _, err := d.Engine.ContainerInspect(ctx, created.ID); err != nil {
		t.Errorf("the foreign container: %v", err)
	}
	if _, err := d.Engine.NetworkInspect(ctx, net.ID, network.InspectOptions{}); err != nil {
		t.Errorf("the foreign network: %v", err)
	}
}
