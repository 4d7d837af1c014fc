package servertest

import (
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// StopSandbox stops a sandbox and waits for its end.
func StopSandbox(t *testing.T, d *Daemon, id string) {
	t.Helper()
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
}

// Works fails the test unless an ordinary client is served in full.
func Works(t *testing.T, d *Daemon, id string) {
	t.Helper()
	if end, stdout, _ := d.Exec(id, "echo", "served"); end.ExitCode != 0 || stdout != "served\n" {
		t.Errorf("an ordinary exec ends with %v, %q", end, stdout)
	}
}

// Lazily has a lazy sandbox accepted.
func Lazily(t *testing.T, d *Daemon, spec *agboxv1.CreateSpec) string {
	t.Helper()
	spec.Lazy = true
	created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: spec})
	if err != nil {
		t.Fatal(err)
	}
	if created.Sandbox.State != Dormant {
		t.Errorf("an accepted lazy sandbox is %v", created.Sandbox)
	}
	return created.Sandbox.SandboxId
}

// ContainersOf lists the engine's containers whose names hold the sandbox's id.
func ContainersOf(t *testing.T, d *Daemon, id string) []container.Summary {
	t.Helper()
	list, err := d.Engine.ContainerList(t.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("name", id))})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Pause pauses a sandbox and returns the event that tells it.
func Pause(t *testing.T, d *Daemon, id string) *agboxv1.SandboxEvent {
	t.Helper()
	got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.PauseSandbox(t.Context(), &agboxv1.PauseSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	return AwaitKind(d, id, got.Sandbox.LastEventSequence, agboxv1.EventType_SANDBOX_PAUSED)
}

// Accepted has the create of a sandbox accepted.
func Accepted(t *testing.T, d *Daemon, spec *agboxv1.CreateSpec) (id string) {
	t.Helper()
	created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: spec})
	if err != nil {
		t.Fatal(err)
	}
	return created.Sandbox.SandboxId
}

// checkInterval is between the health checks of a service. Each costs the engine as much as a command does, as long as the
// service runs, so it is not shorter than a test can well wait for the first.
const checkInterval = time.Second

// Web is a service that serves /tmp on port 8080 once it has taken its time.
func Web(d *Daemon, name string) *agboxv1.ServiceSpec {
	return &agboxv1.ServiceSpec{
		Name: name, Image: d.Image, Envs: map[string]string{"GREETING": "hello from " + name},
		Command: []string{"sh", "-c", `echo starting; echo "$GREETING" > /tmp/index.html; trap 'exit 0' TERM; httpd -f -p 8080 -h /tmp & wait`},
		Healthcheck: &agboxv1.HealthcheckConfig{
			Test:     []string{"CMD-SHELL", "wget -qO- http://127.0.0.1:8080/index.html"},
			Interval: durationpb.New(checkInterval), Timeout: durationpb.New(5 * time.Second), Retries: 20,
		},
	}
}

// Refusing is a service whose check never succeeds.
func Refusing(d *Daemon, name string) *agboxv1.ServiceSpec {
	return &agboxv1.ServiceSpec{
		Name: name, Image: d.Image, Command: []string{"sh", "-c", "echo no license found; sleep 1000"},
		Healthcheck: &agboxv1.HealthcheckConfig{
			Test: []string{"CMD-SHELL", "echo port is closed; exit 1"}, Interval: durationpb.New(checkInterval), Retries: 1,
		},
	}
}

// ServiceContainers are the sandbox's, by the names of the services.
func ServiceContainers(t *testing.T, d *Daemon, id string) map[string]container.Summary {
	t.Helper()
	list, err := d.Engine.ContainerList(t.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("label", "io.github.1996fanrui.agents-sandbox.sandbox-id="+id),
		filters.Arg("label", "io.github.1996fanrui.agents-sandbox.component=service"))})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]container.Summary{}
	for _, c := range list {
		found[c.Labels["io.github.1996fanrui.agents-sandbox.service-name"]] = c
	}
	return found
}

// Sh runs a line of shell that must succeed, and returns its output.
func Sh(t *testing.T, d *Daemon, id, line string) string {
	t.Helper()
	end, stdout, stderr := d.Exec(id, "sh", "-c", line)
	if end.ExitCode != 0 {
		t.Fatalf("%s: %v, %s", line, end, stderr)
	}
	return stdout
}
