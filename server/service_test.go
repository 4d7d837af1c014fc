package server_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

// web is a service that serves /tmp on port 8080 once it has taken its time.
func web(d *servertest.Daemon, name string) *agboxv1.ServiceSpec {
	return &agboxv1.ServiceSpec{
		Name: name, Image: d.Image, Envs: map[string]string{"GREETING": "hello from " + name},
		Command: []string{"sh", "-c", `echo starting; echo "$GREETING" > /tmp/index.html; trap 'exit 0' TERM; httpd -f -p 8080 -h /tmp & wait`},
		Healthcheck: &agboxv1.HealthcheckConfig{
			Test:     []string{"CMD-SHELL", "wget -qO- http://127.0.0.1:8080/index.html"},
			Interval: durationpb.New(200 * time.Millisecond), Timeout: durationpb.New(5 * time.Second), Retries: 20,
		},
	}
}

// refusing is a service whose check never succeeds.
func refusing(d *servertest.Daemon, name string) *agboxv1.ServiceSpec {
	return &agboxv1.ServiceSpec{
		Name: name, Image: d.Image, Command: []string{"sh", "-c", "echo no license found; sleep 1000"},
		Healthcheck: &agboxv1.HealthcheckConfig{
			Test: []string{"CMD-SHELL", "echo port is closed; exit 1"}, Interval: durationpb.New(100 * time.Millisecond), Retries: 2,
		},
	}
}

func serviceEvents(events []*agboxv1.SandboxEvent) (told []string) {
	for _, e := range events {
		if s := e.GetService(); s != nil {
			told = append(told, strings.TrimSpace(strings.TrimPrefix(e.EventType.String(), "SANDBOX_SERVICE_")+" "+s.ServiceName+" "+s.ErrorCode))
		}
	}
	return told
}

func serviceContainers(t *testing.T, d *servertest.Daemon, id string) map[string]container.Summary {
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

// TestServices is the life of a sandbox with services: healthy before READY, reached by name, hooks with the service's
// variables and once only, stopped and started with the sandbox, and its end when a required one dies.
func TestServices(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	db, cache := web(d, "db"), web(d, "my-cache")
	db.PostStartOnPrimary = []string{`echo "$GREETING" >> /workspace/hooks`, `wget -qO- http://db:8080/index.html >> /workspace/hooks`}
	extra := web(d, "extra")
	id := d.Create(&agboxv1.CreateSpec{
		RequiredServices: []*agboxv1.ServiceSpec{db, cache}, OptionalServices: []*agboxv1.ServiceSpec{extra},
	})
	events := d.Await(id, agboxv1.EventType_SANDBOX_READY)
	if told := serviceEvents(events); len(told) != 2 || !slices.Contains(told, "READY db") || !slices.Contains(told, "READY my-cache") {
		t.Errorf("before READY it was told %v", told)
	}
	if _, stdout, stderr := d.Exec(id, "cat", "/workspace/hooks"); stdout != "hello from db\nhello from db\n" {
		t.Errorf("the hooks wrote %q, %s", stdout, stderr)
	}
	isReady := func(name string) func(*agboxv1.SandboxEvent) bool {
		return func(e *agboxv1.SandboxEvent) bool {
			return e.EventType == agboxv1.EventType_SANDBOX_SERVICE_READY && e.GetService().ServiceName == name
		}
	}
	d.AwaitMatch(id, 0, isReady("extra"))
	for _, name := range []string{"my-cache", "extra"} {
		if _, stdout, stderr := d.Exec(id, "wget", "-qO-", "http://"+name+":8080/index.html"); stdout != "hello from "+name+"\n" {
			t.Errorf("%s answers %q, %s", name, stdout, stderr)
		}
	}

	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	stopped := d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	for name, c := range serviceContainers(t, d, id) {
		if c.State == container.StateRunning {
			t.Errorf("%s runs in a stopped sandbox", name)
		}
	}
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	last := stopped[len(stopped)-1].Sequence
	resumed := d.AwaitMatch(id, last, func(e *agboxv1.SandboxEvent) bool { return e.EventType == agboxv1.EventType_SANDBOX_READY })
	if told := serviceEvents(resumed); len(told) != 2 {
		t.Errorf("on the way to READY again it was told %v", told)
	}
	d.AwaitMatch(id, last, isReady("extra"))
	if _, stdout, _ := d.Exec(id, "cat", "/workspace/hooks"); stdout != "hello from db\nhello from db\n" {
		t.Errorf("after a resume the hooks have written %q", stdout)
	}

	found := serviceContainers(t, d, id)
	if err := d.Engine.ContainerKill(t.Context(), found["extra"].ID, "KILL"); err != nil {
		t.Fatal(err)
	}
	lost := d.AwaitMatch(id, last, func(e *agboxv1.SandboxEvent) bool { return e.EventType == agboxv1.EventType_SANDBOX_SERVICE_FAILED })
	if told := lost[len(lost)-1].GetService(); told.ServiceName != "extra" || told.ErrorCode != "SERVICE_NOT_RUNNING" || !strings.Contains(told.ErrorMessage, "137") {
		t.Errorf("the end of an optional service is told as %v", told)
	}
	running := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sleep", "100"}}).ExecId
	if err := d.Engine.ContainerKill(t.Context(), found["db"].ID, "KILL"); err != nil {
		t.Fatal(err)
	}
	failed := failureOf(t, d, id)
	if failed.ErrorCode != "SERVICE_NOT_RUNNING" || !strings.Contains(failed.ErrorMessage, "db") || !strings.Contains(failed.ErrorMessage, "137") {
		t.Errorf("FAILED says %v", failed)
	}
	if end := d.ExecEnd(id, running); end.ExecState == agboxv1.ExecState_EXEC_STATE_RUNNING || end.ErrorCode == "EXEC_RESULT_LOST" {
		t.Errorf("the command that ran ended as %v", end)
	}
	for name, c := range serviceContainers(t, d, id) {
		if c.State == container.StateRunning {
			t.Errorf("%s runs in a failed sandbox", name)
		}
	}
	d.Delete(id)
}

// TestRequiredServiceFails: the create fails with what a person needs to know, and leaves nothing.
func TestRequiredServiceFails(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	exits := web(d, "exits")
	exits.Command = []string{"sh", "-c", "echo bad configuration >&2; exit 3"}
	hook := web(d, "hook")
	hook.PostStartOnPrimary = []string{"echo fine", "echo cannot migrate >&2; exit 9"}
	missing := web(d, "missing")
	missing.Image, missing.PullPolicy = "agbox-test/none:here", "never"
	for name, c := range map[string]struct {
		service *agboxv1.ServiceSpec
		code    string
		says    []string
	}{
		"unhealthy":         {refusing(d, "license"), "SERVICE_UNHEALTHY", []string{"service license", "port is closed", "no license found"}},
		"exits":             {exits, "SERVICE_EXITED", []string{"service exits", "exit code 3", "bad configuration"}},
		"hook":              {hook, "SERVICE_HOOK_FAILED", []string{"service hook", "exit code 9", "cannot migrate"}},
		"without its image": {missing, "", []string{"service missing", "agbox-test/none:here"}},
	} {
		t.Run(name, func(t *testing.T) {
			created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{
				Image: d.Image, RequiredServices: []*agboxv1.ServiceSpec{web(d, "good"), c.service},
			}})
			if err != nil {
				t.Fatal(err)
			}
			id := created.Sandbox.SandboxId
			events := d.Await(id, agboxv1.EventType_SANDBOX_FAILED)
			failed := events[len(events)-1].GetSandboxPhase()
			for _, word := range c.says {
				if !strings.Contains(failed.ErrorMessage, word) {
					t.Errorf("FAILED does not say %q: %v", word, failed)
				}
			}
			if told := serviceEvents(events); c.code != "" && !slices.Contains(told, "FAILED "+c.service.Name+" "+c.code) {
				t.Errorf("of services it was told %v", told)
			}
			dockertest.Leftovers(t, d.Engine, id)
		})
	}
}

// TestOptionalServices: whatever becomes of them, the sandbox is READY, and each is told of once.
func TestOptionalServices(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	missing := web(d, "missing")
	missing.Image, missing.PullPolicy = "agbox-test/none:here", "never"
	plain := &agboxv1.ServiceSpec{Name: "plain", Image: d.Image, Command: []string{"sleep", "1000"}}
	id := d.Create(&agboxv1.CreateSpec{OptionalServices: []*agboxv1.ServiceSpec{missing, refusing(d, "license"), plain, web(d, "good")}})
	told := map[string]int{}
	events := d.AwaitMatch(id, 0, func(e *agboxv1.SandboxEvent) bool {
		if e.GetService() != nil {
			told[serviceEvents([]*agboxv1.SandboxEvent{e})[0]]++
		}
		return len(told) == 4
	})
	for _, want := range []string{"FAILED missing IMAGE_NOT_FOUND", "FAILED license SERVICE_UNHEALTHY", "READY plain", "READY good"} {
		if told[want] != 1 {
			t.Errorf("%q was told %d times: %v", want, told[want], told)
		}
	}
	d.Restart()
	if end, _, _ := d.Exec(id, "true"); end.ExitCode != 0 {
		t.Errorf("after a restart of the daemon an exec ends with %v", end)
	}
	last := events[len(events)-1].Sequence
	for _, e := range d.AwaitMatch(id, last, func(e *agboxv1.SandboxEvent) bool { return e.EventType == agboxv1.EventType_EXEC_FINISHED }) {
		if e.GetService() != nil {
			t.Errorf("a restart of the daemon tells again: %v", e)
		}
	}
	d.Delete(id)
}

// TestResumeWithoutAService: a part that is missing is named, and not made again.
func TestResumeWithoutAService(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{web(d, "db")}})
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	if err := d.Engine.ContainerRemove(t.Context(), serviceContainers(t, d, id)["db"].ID, container.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	failed := failureOf(t, d, id)
	if failed.ErrorCode != "SANDBOX_RUNTIME_CORRUPT" || !strings.Contains(failed.ErrorMessage, "db") {
		t.Errorf("FAILED says %v", failed)
	}
	d.Delete(id)
}

// TestServiceNames: two sandboxes whose containers would get one name both live.
func TestServiceNames(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	create := func(id, service string) {
		_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{
			Image: d.Image, RequiredServices: []*agboxv1.ServiceSpec{web(d, service)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		d.Await(id, agboxv1.EventType_SANDBOX_READY)
	}
	create("names-a", "b-c")
	create("names-a-b", "c")
	for _, id := range []string{"names-a", "names-a-b"} {
		if found := serviceContainers(t, d, id); len(found) != 1 {
			t.Errorf("%s has the services %v", id, found)
		}
	}
	d.Delete("names-a")
	if found := serviceContainers(t, d, "names-a-b"); found["c"].State != container.StateRunning {
		t.Errorf("the delete of one has left of the other %v", found)
	}
}
