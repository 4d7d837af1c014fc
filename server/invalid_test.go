package server_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/servertest"
)

// TestInvalidValues: what the contract's list does not name, and could not be run either, is refused the same way.
func TestInvalidValues(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	const id = "refused-box"
	links, pipes := t.TempDir(), t.TempDir()
	pipe := filepath.Join(pipes, "pipe")
	if err := os.Symlink("/usr", filepath.Join(links, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	mount := func(source, target string) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{{Source: source, Target: target}}}
	}
	copied := func(source string, exclude ...string) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Copies: []*agboxv1.CopySpec{{Source: source, Target: "/x", ExcludePatterns: exclude}}}
	}
	optional := func(name, image string) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{OptionalServices: []*agboxv1.ServiceSpec{{Name: name, Image: image}}}
	}
	healthcheck := &agboxv1.HealthcheckConfig{Test: []string{"CMD", "true"}, Interval: durationpb.New(-1)}

	for name, test := range map[string]struct {
		spec          *agboxv1.CreateSpec
		reason, field string
	}{
		"image":              {&agboxv1.CreateSpec{Image: "a b"}, "IMAGE_INVALID", "create_spec.image"},
		"name of a variable": {&agboxv1.CreateSpec{Envs: map[string]string{"A=B": ""}}, "ENV_INVALID", `create_spec.envs["A=B"]`},
		"key of a label":     {&agboxv1.CreateSpec{Labels: map[string]string{"": "x"}}, "LABEL_INVALID", "create_spec.labels"},
		"through a symlink":  {mount(filepath.Join(links, "link", "bin"), "/x"), "SOURCE_SYMLINK", "create_spec.mounts[0].source"},
		"pipe":               {mount(pipe, "/x"), "SOURCE_NOT_FILE_OR_DIRECTORY", "create_spec.mounts[0].source"},
		"the daemon's data":  {mount(d.Dir(), "/x"), "SOURCE_PROTECTED", "create_spec.mounts[0].source"},
		"the host's root":    {mount("/", "/x"), "SOURCE_PROTECTED", "create_spec.mounts[0].source"},
		"target with ..":     {mount("/usr", "/x/../y"), "TARGET_TRAVERSAL", "create_spec.mounts[0].target"},
		"target of our own":  {mount("/usr", "/.agbox/x"), "TARGET_RESERVED", "create_spec.mounts[0].target"},
		"target of a copy": {&agboxv1.CreateSpec{
			Mounts: []*agboxv1.MountSpec{{Source: "/usr", Target: "/x"}}, Copies: copied("/usr/bin").Copies,
		}, "TARGET_REPEATED", "create_spec.copies[0].target"},
		"copy of a pipe":      {copied(pipe), "SOURCE_NOT_FILE_OR_DIRECTORY", "create_spec.copies[0].source"},
		"copy with a pipe":    {copied(pipes), "COPY_ENTRY_KIND", "create_spec.copies[0].source"},
		"copy with a way out": {copied(links), "COPY_LINK_ESCAPES", "create_spec.copies[0].source"},
		"exclude pattern":     {copied(pipes, "["), "EXCLUDE_PATTERN_INVALID", "create_spec.copies[0].exclude_patterns[0]"},
		"service name":        {optional("a b", "x"), "SERVICE_NAME_INVALID", "create_spec.optional_services[0].name"},
		"optional image":      {optional("db", ""), "SERVICE_IMAGE_REQUIRED", "create_spec.optional_services[0].image"},
		"healthcheck interval": {&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{{Name: "db", Image: "x", Healthcheck: healthcheck}}},
			"DURATION_NEGATIVE", "create_spec.required_services[0].healthcheck.interval"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.spec.Image == "" {
				test.spec.Image = d.Image
			}
			_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: test.spec})
			refused(t, err, codes.InvalidArgument, test.reason, test.field)
		})
	}
	for name, test := range map[string]struct{ yaml, reason, field string }{
		"key twice":     {"image: x\nimage: y\n", "CONFIG_YAML_DUPLICATE_KEY", "config_yaml"},
		"duration":      {"image: x\nidle_ttl: soon\n", "CONFIG_YAML_VALUE_INVALID", "config_yaml"},
		"negative":      {"image: x\nidle_ttl: -5m\n", "DURATION_NEGATIVE", "create_spec.idle_ttl"},
		"without image": {"envs: {A: b}\n", "IMAGE_REQUIRED", "create_spec.image"},
	} {
		t.Run("YAML "+name, func(t *testing.T) {
			_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, ConfigYaml: []byte(test.yaml)})
			refused(t, err, codes.InvalidArgument, test.reason, test.field)
		})
	}
	for _, kind := range []string{"exec-logs", "exec-results", "run"} {
		if _, err := os.Lstat(filepath.Join(d.Dir(), kind, id)); !os.IsNotExist(err) {
			t.Errorf("a refused create made a directory in %s: %v", kind, err)
		}
	}
}

// TestInvalidExecs: a refused exec leaves no event, and its id is free.
func TestInvalidExecs(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	const execID = "refused-exec"
	ok := []string{"true"}
	for name, test := range map[string]struct {
		request       *agboxv1.CreateExecRequest
		reason, field string
	}{
		"empty word":        {&agboxv1.CreateExecRequest{ExecId: execID, Command: []string{"", "x"}}, "COMMAND_REQUIRED", "command"},
		"NUL":               {&agboxv1.CreateExecRequest{ExecId: execID, Command: []string{"echo", "a\x00b"}}, "COMMAND_INVALID", "command[1]"},
		"id that leads out": {&agboxv1.CreateExecRequest{ExecId: "../../x", Command: ok}, "INVALID_EXEC_ID", "exec_id"},
		"id of our own log": {&agboxv1.CreateExecRequest{ExecId: "_primary", Command: ok}, "INVALID_EXEC_ID", "exec_id"},
		"cwd with NUL":      {&agboxv1.CreateExecRequest{ExecId: execID, Command: ok, Cwd: "a\x00"}, "CWD_INVALID", "cwd"},
		"nameless variable": {&agboxv1.CreateExecRequest{ExecId: execID, Command: ok, EnvOverrides: map[string]string{"": "x"}}, "ENV_INVALID", "env_overrides"},
	} {
		t.Run(name, func(t *testing.T) {
			test.request.SandboxId = id
			_, err := d.CreateExec(t.Context(), test.request)
			refused(t, err, codes.InvalidArgument, test.reason, test.field)
		})
	}
	d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, ExecId: execID, Command: ok})
	d.ExecEnd(id, execID)
	if got := kinds(d.Await(id, agboxv1.EventType_EXEC_FINISHED)); got != "ACCEPTED PREPARING READY EXEC_STARTED EXEC_FINISHED" {
		t.Errorf("the log is %s", got)
	}
}

// TestInvalidSelectors: a label without a key is refused, and a refused deletion deletes nothing.
func TestInvalidSelectors(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	nameless := map[string]string{"": "x"}
	_, err := d.ListSandboxes(t.Context(), &agboxv1.ListSandboxesRequest{LabelSelector: nameless})
	refused(t, err, codes.InvalidArgument, "LABEL_INVALID", "label_selector")
	for reason, selector := range map[string]map[string]string{"LABEL_INVALID": nameless, "LABEL_SELECTOR_REQUIRED": nil} {
		_, err = d.DeleteSandboxes(t.Context(), &agboxv1.DeleteSandboxesRequest{LabelSelector: selector})
		refused(t, err, codes.InvalidArgument, reason, "label_selector")
	}
	got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil || got.Sandbox.State != agboxv1.SandboxState_SANDBOX_STATE_READY {
		t.Errorf("the sandbox is %v, %v", got, err)
	}
}
