package events_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestOwnOutput: what the sandbox's own command writes, followed from before it is there to its end.
func TestOwnOutput(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	const id = "own-output"
	_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{
		Image: d.Image, OnCommandEnd: "keep", Lazy: true,
		Command: []string{"sh", "-c", "mkfifo -m 666 /workspace/gate; echo up; echo oops >&2; read go </workspace/gate; echo $go; seq 100000"}}})
	if err != nil {
		t.Fatal(err)
	}
	stdout := servertest.ReadSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Source: "stdout", Follow: true})
	stderr := servertest.ReadSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Source: "stderr", Follow: true})
	if end, _, errs := d.Exec(id, "true"); end.ExitCode != 0 {
		t.Fatal(errs)
	}
	stdout.Until("", "up\n")
	stderr.Until("", "oops\n")
	if end, _, errs := d.Exec(id, "sh", "-c", "echo went >/workspace/gate"); end.ExitCode != 0 {
		t.Fatal(errs)
	}
	if got := stdout.End()[""]; !strings.HasPrefix(got, "up\nwent\n1\n") || !strings.HasSuffix(got, "\n99999\n100000\n") {
		t.Errorf("it wrote %d bytes: %.20q", len(got), got)
	}
	if got := stderr.End()[""]; got != "oops\n" {
		t.Errorf("to stderr it wrote %q", got)
	}
	servertest.CommandEnded(t, d, id, 0)
	for _, follow := range []bool{false, true} {
		if got := servertest.ReadSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Source: "stdout", Follow: follow, TailBytes: new(uint64(7))}).End()[""]; got != "100000\n" {
			t.Errorf("its last bytes are %q", got)
		}
	}
	d.Delete(id)
	if got := servertest.ReadSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Source: "stderr", Follow: true}).End()[""]; got != "oops\n" {
		t.Errorf("after the deletion stderr is %q", got)
	}

	prepared := d.Create(&agboxv1.CreateSpec{Image: d.Variant(dockertest.EntrypointPrepares)})
	entrypoint := servertest.ReadSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: prepared, Source: "stdout", Follow: true})
	entrypoint.Until("", "entrypoint: prepared\n")
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: prepared}); err != nil {
		t.Fatal(err)
	}
	if got := entrypoint.End()[""]; got != "entrypoint: prepared\n" {
		t.Errorf("the entrypoint wrote %q", got)
	}
}

// TestServiceLog: both streams of a service, while it runs, after its end, from any byte; and none where there is none.
func TestServiceLog(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	talks := servertest.Web(d, "talks")
	talks.Envs["GREETING"] = "now"
	talks.Command = []string{"sh", "-c", `mkfifo /tmp/gate; echo now >/tmp/index.html; httpd -p 8080 -h /tmp
		echo out one; echo err one >&2; read go </tmp/gate; seq 20000; echo err two >&2`}
	id := d.Create(&agboxv1.CreateSpec{OptionalServices: []*agboxv1.ServiceSpec{talks}})
	d.AwaitMatch(id, 0, func(e *agboxv1.SandboxEvent) bool { return e.EventType == agboxv1.EventType_SANDBOX_SERVICE_READY })
	request := func(follow bool, tail *uint64) *agboxv1.ReadSandboxLogRequest {
		return &agboxv1.ReadSandboxLogRequest{SandboxId: id, Source: "service", ServiceName: "talks", Follow: follow, TailBytes: tail}
	}
	if got := servertest.ReadSandboxLog(t, d.Client, request(false, nil)).End(); got["stdout"] != "out one\n" || got["stderr"] != "err one\n" {
		t.Errorf("at first it wrote %q", got)
	}
	follower, restarted := servertest.ReadSandboxLog(t, d.Client, request(true, nil)), servertest.ReadSandboxLog(t, d.Client, request(true, nil))
	follower.Until("stderr", "err one\n")
	restarted.Until("stderr", "err one\n")
	d.Restart()
	var err error
	for err == nil {
		err = restarted.Next()
	}
	servertest.Refused(t, err, codes.Unavailable, "DAEMON_SHUTTING_DOWN", "")
	follower = servertest.ReadSandboxLog(t, d.Client, request(true, nil))
	follower.Until("stderr", "err one\n")
	late := servertest.ReadSandboxLog(t, d.Client, request(true, new(uint64(0))))
	name := servertest.ServiceContainers(t, d, id)["talks"].ID
	exec, err := d.Engine.ContainerExecCreate(t.Context(), name, container.ExecOptions{Cmd: []string{"sh", "-c", "echo go >/tmp/gate"}})
	if err == nil {
		err = d.Engine.ContainerExecStart(t.Context(), exec.ID, container.ExecStartOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	var seq strings.Builder
	for i := range 20000 {
		fmt.Fprintln(&seq, i+1)
	}
	if got := follower.End(); got["stdout"] != "out one\n"+seq.String() || got["stderr"] != "err one\nerr two\n" {
		t.Errorf("to its end it wrote %d bytes and %q", len(got["stdout"]), got["stderr"])
	}
	if got := late.End(); !strings.HasSuffix(seq.String(), got["stdout"]) {
		t.Errorf("who came late got %d bytes, %.20q", len(got["stdout"]), got["stdout"])
	}
	const size = 100 // which of the streams it is of is up to Docker
	for _, follow := range []bool{false, true} {
		got := servertest.ReadSandboxLog(t, d.Client, request(follow, new(uint64(size)))).End()
		if len(got["stdout"])+len(got["stderr"]) != size || !strings.HasSuffix(seq.String(), got["stdout"]) || !strings.HasSuffix("err two\n", got["stderr"]) {
			t.Errorf("the last bytes are %q", got)
		}
	}

	if got := servertest.ReadSandboxLog(t, d.Client, request(false, new(uint64(1<<62)))).End(); got["stdout"] != "out one\n"+seq.String() {
		t.Errorf("a tail longer than the log has %d bytes", len(got["stdout"]))
	}
	d.Delete(id)
	err = servertest.ReadSandboxLog(t, d.Client, request(true, nil)).Next()
	servertest.Refused(t, err, codes.FailedPrecondition, "SERVICE_NOT_MADE", "service_name", "talks has no container while sandbox "+id+" is DELETED")
}

// TestOutputOfAllLives: what the sandbox's own command wrote in one life stays when it is stopped and resumed, by both ways into
// it, and an error quotes the last life only.
func TestOutputOfAllLives(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "run")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho life $(cat /workspace/n); echo oops >&2; exec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]*servertest.Daemon{"socket": servertest.Start(t), "engine": servertest.Start(t, servertest.ByEngine)} {
		id := d.Create(&agboxv1.CreateSpec{Command: []string{"/srv/run"}, Copies: []*agboxv1.CopySpec{{Source: program, Target: "/srv/run"}}})
		read := func(source string) string {
			return servertest.ReadSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Source: source}).End()[""]
		}
		again := func() *agboxv1.SandboxHandle {
			t.Helper()
			if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id, Force: true}); err != nil {
				t.Fatal(err)
			}
			for _, state := range []agboxv1.SandboxState{servertest.Stopped, servertest.Ready} {
				waited, err := d.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id, States: []agboxv1.SandboxState{state, servertest.Failed}})
				if err == nil && state == servertest.Stopped {
					_, err = d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id})
				}
				if err != nil {
					t.Fatal(err)
				}
				if state == servertest.Ready {
					return waited.Sandbox
				}
			}
			return nil
		}
		written := func(want string) {
			t.Helper()
			follower := servertest.ReadSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Source: "stdout", Follow: true})
			follower.Until("", want)
			follower.Close()
		}
		written("life\n")
		d.Exec(id, "sh", "-c", "echo two >/workspace/n")
		if box := again(); box.State != servertest.Ready {
			t.Fatalf("by %s it is %v", name, box)
		}
		written("life two\n")
		if got := read("stdout"); got != "life\nlife two\n" {
			t.Errorf("by %s two lives wrote %q", name, got)
		}
		inOrder(t, oplogOf(t, d, id), `resume: container \S+ started in \d+ ms`, `resume: the output of an earlier life ends at byte 5 of stdout and \d+ of stderr`)
		gone := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, User: "0", Command: []string{"rm", "/srv/run"}})
		d.ExecEnd(id, gone.ExecId)
		if box := again(); box.ErrorCode != "SANDBOX_COMMAND_FAILED" || strings.Contains(box.ErrorMessage, "life") || strings.Contains(box.ErrorMessage, "oops") {
			t.Errorf("by %s without its program it is %v", name, box)
		}
		if got := read("stdout"); got != "life\nlife two\n" {
			t.Errorf("by %s after all that there is %q", name, got)
		}
	}
}
