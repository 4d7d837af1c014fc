package services_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

func serviceEvents(events []*agboxv1.SandboxEvent) (told []string) {
	for _, e := range events {
		if s := e.GetService(); s != nil {
			told = append(told, strings.TrimSpace(strings.TrimPrefix(e.EventType.String(), "SANDBOX_SERVICE_")+" "+s.ServiceName+" "+s.ErrorCode))
		}
	}
	return told
}

// TestServices is the life of a sandbox with services: healthy before READY, reached by name, hooks with the service's
// variables and once only, stopped and started with the sandbox, and its end when a required one dies.
func TestServices(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	db, cache := servertest.Web(d, "db"), servertest.Web(d, "my-cache")
	db.PostStartOnPrimary = []string{`echo "$GREETING" >> /workspace/hooks`, `wget -qO- http://db:8080/index.html >> /workspace/hooks`}
	extra := servertest.Web(d, "extra")
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
	for name, c := range servertest.ServiceContainers(t, d, id) {
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

	found := servertest.ServiceContainers(t, d, id)
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
	failed := servertest.FailureOf(t, d, id)
	if failed.ErrorCode != "SERVICE_NOT_RUNNING" || !strings.Contains(failed.ErrorMessage, "db") || !strings.Contains(failed.ErrorMessage, "137") {
		t.Errorf("FAILED says %v", failed)
	}
	if end := d.ExecEnd(id, running); end.ExecState == agboxv1.ExecState_EXEC_STATE_RUNNING || end.ErrorCode == "EXEC_RESULT_LOST" {
		t.Errorf("the command that ran ended as %v", end)
	}
	for name, c := range servertest.ServiceContainers(t, d, id) {
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
	exits := servertest.Web(d, "exits")
	exits.Command = []string{"sh", "-c", "echo bad configuration >&2; exit 3"}
	hook := servertest.Web(d, "hook")
	hook.PostStartOnPrimary = []string{"echo fine", "echo cannot migrate >&2; exit 9"}
	missing := servertest.Web(d, "missing")
	missing.Image, missing.PullPolicy = "agbox-test/none:here", "never"
	for name, c := range map[string]struct {
		service *agboxv1.ServiceSpec
		code    string
		says    []string
	}{
		"unhealthy":         {servertest.Refusing(d, "license"), "SERVICE_UNHEALTHY", []string{"service license", "port is closed", "no license found"}},
		"exits":             {exits, "SERVICE_EXITED", []string{"service exits", "exit code 3", "bad configuration"}},
		"hook":              {hook, "SERVICE_HOOK_FAILED", []string{"service hook", "exit code 9", "cannot migrate"}},
		"without its image": {missing, "", []string{"service missing", "agbox-test/none:here"}},
	} {
		t.Run(name, func(t *testing.T) {
			created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{
				Image: d.Image, RequiredServices: []*agboxv1.ServiceSpec{servertest.Web(d, "good"), c.service},
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
	missing := servertest.Web(d, "missing")
	missing.Image, missing.PullPolicy = "agbox-test/none:here", "never"
	plain := &agboxv1.ServiceSpec{Name: "plain", Image: d.Image, Command: []string{"sleep", "1000"}}
	id := d.Create(&agboxv1.CreateSpec{OptionalServices: []*agboxv1.ServiceSpec{missing, servertest.Refusing(d, "license"), plain, servertest.Web(d, "good")}})
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
	id := d.Create(&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{servertest.Web(d, "db")}})
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	if err := d.Engine.ContainerRemove(t.Context(), servertest.ServiceContainers(t, d, id)["db"].ID, container.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	failed := servertest.FailureOf(t, d, id)
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
			Image: d.Image, RequiredServices: []*agboxv1.ServiceSpec{servertest.Web(d, service)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		d.Await(id, agboxv1.EventType_SANDBOX_READY)
	}
	create("names-a", "b-c")
	create("names-a-b", "c")
	for _, id := range []string{"names-a", "names-a-b"} {
		if found := servertest.ServiceContainers(t, d, id); len(found) != 1 {
			t.Errorf("%s has the services %v", id, found)
		}
	}
	d.Delete("names-a")
	if found := servertest.ServiceContainers(t, d, "names-a-b"); found["c"].State != container.StateRunning {
		t.Errorf("the delete of one has left of the other %v", found)
	}
}
