package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

// sandboxLogReader is one reading of a sandbox's log, which keeps what it has read by stream.
type sandboxLogReader struct {
	t      *testing.T
	stream *raw.SandboxLogStream
	got    map[string]*strings.Builder
}

func readSandboxLog(t *testing.T, c *raw.Client, req *agboxv1.ReadSandboxLogRequest) *sandboxLogReader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	stream, err := c.ReadSandboxLog(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Close)
	return &sandboxLogReader{t: t, stream: stream, got: map[string]*strings.Builder{"": {}, "stdout": {}, "stderr": {}}}
}

// next takes in a chunk and returns what ends the reading.
func (r *sandboxLogReader) next() error {
	chunk, err := r.stream.Recv()
	if err == nil && len(chunk.Data) > 64<<10 {
		r.t.Errorf("a chunk has %d bytes", len(chunk.Data))
	}
	r.got[chunk.GetStream()].Write(chunk.GetData())
	return err
}

// until reads on to a text.
func (r *sandboxLogReader) until(stream, text string) {
	r.t.Helper()
	for seen := 0; ; {
		got := r.got[stream].String()
		if strings.Contains(got[max(seen-len(text), 0):], text) {
			return
		}
		seen = len(got)
		if err := r.next(); err != nil {
			r.t.Fatalf("%q does not come after %.2000q: %v", text, got, err)
		}
	}
}

// end reads to the end and returns all of it.
func (r *sandboxLogReader) end() map[string]string {
	r.t.Helper()
	for {
		switch err := r.next(); {
		case errors.Is(err, io.EOF):
			all := map[string]string{}
			for stream, text := range r.got {
				all[stream] = text.String()
			}
			return all
		case err != nil:
			r.t.Fatalf("after %.2000q: %v", r.got[""].String(), err)
		}
	}
}

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
	stdout := readSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Source: "stdout", Follow: true})
	stderr := readSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Source: "stderr", Follow: true})
	if end, _, errs := d.Exec(id, "true"); end.ExitCode != 0 {
		t.Fatal(errs)
	}
	stdout.until("", "up\n")
	stderr.until("", "oops\n")
	if end, _, errs := d.Exec(id, "sh", "-c", "echo went >/workspace/gate"); end.ExitCode != 0 {
		t.Fatal(errs)
	}
	if got := stdout.end()[""]; !strings.HasPrefix(got, "up\nwent\n1\n") || !strings.HasSuffix(got, "\n99999\n100000\n") {
		t.Errorf("it wrote %d bytes: %.20q", len(got), got)
	}
	if got := stderr.end()[""]; got != "oops\n" {
		t.Errorf("to stderr it wrote %q", got)
	}
	commandEnded(t, d, id, 0)
	for _, follow := range []bool{false, true} {
		if got := readSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Source: "stdout", Follow: follow, TailBytes: tail(7)}).end()[""]; got != "100000\n" {
			t.Errorf("its last bytes are %q", got)
		}
	}
	d.Delete(id)
	if got := readSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Source: "stderr", Follow: true}).end()[""]; got != "oops\n" {
		t.Errorf("after the deletion stderr is %q", got)
	}

	prepared := d.Create(&agboxv1.CreateSpec{Image: d.Variant(dockertest.EntrypointPrepares)})
	entrypoint := readSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: prepared, Source: "stdout", Follow: true})
	entrypoint.until("", "entrypoint: prepared\n")
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: prepared}); err != nil {
		t.Fatal(err)
	}
	if got := entrypoint.end()[""]; got != "entrypoint: prepared\n" {
		t.Errorf("the entrypoint wrote %q", got)
	}
}

// TestServiceLog: both streams of a service, while it runs, after its end, from any byte; and none where there is none.
func TestServiceLog(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	talks := web(d, "talks")
	talks.Envs["GREETING"] = "now"
	talks.Command = []string{"sh", "-c", `mkfifo /tmp/gate; echo now >/tmp/index.html; httpd -p 8080 -h /tmp
		echo out one; echo err one >&2; read go </tmp/gate; seq 20000; echo err two >&2`}
	id := d.Create(&agboxv1.CreateSpec{OptionalServices: []*agboxv1.ServiceSpec{talks}})
	d.AwaitMatch(id, 0, func(e *agboxv1.SandboxEvent) bool { return e.EventType == agboxv1.EventType_SANDBOX_SERVICE_READY })
	request := func(follow bool, tail *uint64) *agboxv1.ReadSandboxLogRequest {
		return &agboxv1.ReadSandboxLogRequest{SandboxId: id, Source: "service", ServiceName: "talks", Follow: follow, TailBytes: tail}
	}
	if got := readSandboxLog(t, d.Client, request(false, nil)).end(); got["stdout"] != "out one\n" || got["stderr"] != "err one\n" {
		t.Errorf("at first it wrote %q", got)
	}
	follower, restarted := readSandboxLog(t, d.Client, request(true, nil)), readSandboxLog(t, d.Client, request(true, nil))
	follower.until("stderr", "err one\n")
	restarted.until("stderr", "err one\n")
	d.Restart()
	var err error
	for err == nil {
		err = restarted.next()
	}
	refused(t, err, codes.Unavailable, "DAEMON_SHUTTING_DOWN", "")
	follower = readSandboxLog(t, d.Client, request(true, nil))
	follower.until("stderr", "err one\n")
	late := readSandboxLog(t, d.Client, request(true, tail(0)))
	name := serviceContainers(t, d, id)["talks"].ID
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
	if got := follower.end(); got["stdout"] != "out one\n"+seq.String() || got["stderr"] != "err one\nerr two\n" {
		t.Errorf("to its end it wrote %d bytes and %q", len(got["stdout"]), got["stderr"])
	}
	if got := late.end(); !strings.HasSuffix(seq.String(), got["stdout"]) {
		t.Errorf("who came late got %d bytes, %.20q", len(got["stdout"]), got["stdout"])
	}
	const size = 100 // which of the streams it is of is up to Docker
	for _, follow := range []bool{false, true} {
		got := readSandboxLog(t, d.Client, request(follow, tail(size))).end()
		if len(got["stdout"])+len(got["stderr"]) != size || !strings.HasSuffix(seq.String(), got["stdout"]) || !strings.HasSuffix("err two\n", got["stderr"]) {
			t.Errorf("the last bytes are %q", got)
		}
	}

	if got := readSandboxLog(t, d.Client, request(false, tail(1<<62))).end(); got["stdout"] != "out one\n"+seq.String() {
		t.Errorf("a tail longer than the log has %d bytes", len(got["stdout"]))
	}
	d.Delete(id)
	err = readSandboxLog(t, d.Client, request(true, nil)).next()
	refused(t, err, codes.FailedPrecondition, "SERVICE_NOT_MADE", "service_name", "talks has no container while sandbox "+id+" is DELETED")
}

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
			`"syslog" is no log of a sandbox: use story, stdout, stderr or service`},
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
		refused(t, readSandboxLog(t, f.Client, c.req).next(), c.code, c.reason, c.field, c.words)
	}
	var followers []*sandboxLogReader
	for _, source := range []string{"story", "stdout", "stderr"} {
		req := &agboxv1.ReadSandboxLogRequest{SandboxId: "served-box", Source: source}
		if got := readSandboxLog(t, f.Client, req).end(); len(strings.Join(slices.Collect(maps.Values(got)), "")) != 0 {
			t.Errorf("%s of a dormant sandbox is %q", source, got)
		}
		req.Follow = true
		followers = append(followers, readSandboxLog(t, f.Client, req))
	}
	f.remove("served-box")
	for _, follower := range followers {
		if got := follower.end()[""]; got != "" {
			t.Errorf("of a dormant sandbox was told %q", got)
		}
	}
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
			return readSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Source: source}).end()[""]
		}
		again := func() *agboxv1.SandboxHandle {
			t.Helper()
			if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id, Force: true}); err != nil {
				t.Fatal(err)
			}
			for _, state := range []agboxv1.SandboxState{stopped, ready} {
				waited, err := d.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id, States: []agboxv1.SandboxState{state, failed}})
				if err == nil && state == stopped {
					_, err = d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id})
				}
				if err != nil {
					t.Fatal(err)
				}
				if state == ready {
					return waited.Sandbox
				}
			}
			return nil
		}
		written := func(want string) {
			t.Helper()
			follower := readSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Source: "stdout", Follow: true})
			follower.until("", want)
			follower.stream.Close()
		}
		written("life\n")
		d.Exec(id, "sh", "-c", "echo two >/workspace/n")
		if box := again(); box.State != ready {
			t.Fatalf("by %s it is %v", name, box)
		}
		written("life two\n")
		if got := read("stdout"); got != "life\nlife two\n" {
			t.Errorf("by %s two lives wrote %q", name, got)
		}
		inOrder(t, storyOf(t, d, id), `resume: container \S+ started in \d+ ms`, `resume: the output of an earlier life ends at byte 5 of stdout and \d+ of stderr`)
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
