// Package servertest runs a whole daemon inside a test: real socket, real database, and real Docker (Start) or sandboxes that cost
// nothing (Instant).
package servertest

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/client"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	actorsruntime "github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt"
	"github.com/agbox-dev/agbox/dockerrt/host"
	"github.com/agbox-dev/agbox/hostpath"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/server"
	"github.com/agbox-dev/agbox/server/socket"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// Daemon is a running daemon and a client of it.
type Daemon struct {
	*raw.Client
	Engine *client.Client // nil for an Instant daemon
	Image  string         // has busybox and a user agbox
	// Home is where builtin tools are taken from; the next start heeds a change.
	Home string

	// Actors and Server are what the next start of the daemon is configured with, beside what a test needs.
	Actors actors.Config
	Server server.Config

	t      testing.TB
	config dockerrt.Config
	fake   *actorstest.Runtime // in Docker's place, nil: Docker is used
	stop   func()
	ended  bool
}

// runtime is what a daemon stands on.
type runtime interface {
	actorsruntime.Runtime
	server.Runtime
	Close() error
}

// instant is the runtime without Docker, which outlives every daemon of its test.
type instant struct{ *actorstest.Runtime }

func (instant) Close() error { return nil }

// Start runs a daemon on directories of its own. At the end of the test it deletes every sandbox that is left,
// stops the daemon and fails the test when anything stays behind in Docker.
func Start(t testing.TB, options ...func(*dockerrt.Config)) *Daemon {
	t.Helper()
	engine := dockertest.Engine(t)
	// The socket's path must be short, which a test's own directory is not.
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &Daemon{
		Engine: engine,
		Image:  dockertest.TinyImage(t, engine, dockertest.Busybox),
		Home:   dir,
		t:      t,
		config: dockerrt.Config{
			Instance: filepath.Base(dir), DataDir: dir, InitPath: dockertest.InitBinary(t),
			Pool: netip.MustParsePrefix("10.214.0.0/16"), SubnetBits: 28,
			Places:            hostpath.Places{Home: dir, Own: []string{dir}},
			CreateConcurrency: 3, StopGrace: 2 * time.Second, UID: os.Getuid(), GID: os.Getgid(),
		},
	}
	for _, option := range options {
		option(&d.config)
	}
	d.begin()
	return d
}

// Instant runs a daemon on a runtime without Docker, with Start's promises, for what no container is needed for. A command of its
// sandboxes ends at once and says its own words but the first, as echo does, unless fake has another Run.
func Instant(t testing.TB, fake *actorstest.Runtime) *Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &Daemon{Image: "image", Home: dir, t: t, fake: fake, config: dockerrt.Config{DataDir: dir, Places: hostpath.Places{Home: dir, Own: []string{dir}}}}
	fake.Logs = dir
	if fake.Run == nil {
		fake.Run = func(_ context.Context, request *agboxv1.CreateExecRequest) (actorsruntime.ExecResult, error) {
			stdout, stderr := fake.ExecLogs(request.SandboxId, request.ExecId)
			text := strings.Join(request.Command[1:], " ") + "\n"
			err := errors.Join(os.MkdirAll(filepath.Dir(stdout), 0o700), os.WriteFile(stdout, []byte(text), 0o600), os.WriteFile(stderr, nil, 0o600))
			return actorsruntime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FINISHED}, err
		}
	}
	d.begin()
	return d
}

func (d *Daemon) begin() {
	d.t.Helper()
	var err error
	if d.Client, err = raw.Dial(raw.WithSocket(filepath.Join(d.config.DataDir, "r", "agboxd.sock"))); err != nil {
		d.t.Fatal(err)
	}
	d.start()
	d.t.Cleanup(d.end)
}

// ByEngine has commands get into sandboxes through the engine.
func ByEngine(c *dockerrt.Config) { c.ExecTransport = host.TransportEngine }

// In has the daemon keep everything below a directory that is the test's. Its path must be short.
func In(dir string) func(*dockerrt.Config) {
	return func(c *dockerrt.Config) { c.DataDir = dir }
}

// Variant returns another of the tiny images.
func (d *Daemon) Variant(v dockertest.Variant) string {
	d.t.Helper()
	return dockertest.TinyImage(d.t, d.Engine, v)
}

// Restart ends the daemon as a signal does and starts it again on the same directories.
func (d *Daemon) Restart() {
	d.t.Helper()
	d.stop()
	d.start()
}

// Stop ends the daemon as a signal does and returns when it has ended. Sandboxes go on.
func (d *Daemon) Stop() { d.stop() }

// StartAgain starts a stopped daemon on the same directories.
func (d *Daemon) StartAgain() {
	d.t.Helper()
	d.start()
}

// Dir is the daemon's data directory. No sandbox may mount it.
func (d *Daemon) Dir() string { return d.config.DataDir }

func (d *Daemon) start() {
	d.t.Helper()
	log := slog.New(slog.NewTextHandler(d.t.Output(), nil))
	db, err := persist.Open(filepath.Join(d.config.DataDir, "ids.db"))
	if err != nil {
		d.t.Fatal(err)
	}
	config := d.Server
	config.Version, config.Host.Places = "test", d.config.Places
	var runtime runtime = instant{d.fake}
	if d.fake == nil {
		docker, err := dockerrt.New(context.Background(), d.config, log)
		if err != nil {
			d.t.Fatal(errors.Join(err, db.Close()))
		}
		runtime, config.Host.Places, config.Host.ReadOnlyBelow = docker, docker.Places(), docker.ReadOnlyBelow()
	}
	config.Host.Home = d.Home
	system, err := actors.Start(d.Actors, db, runtime, log)
	if err != nil {
		d.t.Fatal(errors.Join(err, runtime.Close(), db.Close()))
	}
	listener, err := socket.Listen(d.Socket())
	if err != nil {
		d.t.Fatal(err)
	}
	service := server.New(config, system, db, runtime, log)
	served := make(chan error, 1)
	go func() { served <- service.Serve(listener) }()
	d.ended = false
	d.stop = func() {
		if d.ended {
			return
		}
		d.ended = true
		service.Shutdown()
		if err := errors.Join(<-served); err != nil {
			d.t.Error(err)
		}
		system.Shutdown(context.Background())
		if err := errors.Join(runtime.Close(), db.Close()); err != nil {
			d.t.Error(err)
		}
	}
}

func (d *Daemon) end() {
	defer d.Client.Close()
	if d.ended {
		d.start()
	}
	defer func() { d.stop() }()
	ctx := context.Background()
	list, err := d.ListSandboxes(ctx, &agboxv1.ListSandboxesRequest{})
	if err != nil {
		if d.t.Failed() {
			return
		}
		d.t.Error(err)
		return
	}
	for _, sandbox := range list.Sandboxes {
		if _, err := d.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: sandbox.SandboxId}); err != nil {
			d.t.Error(err)
		}
	}
	for _, sandbox := range list.Sandboxes {
		d.Await(sandbox.SandboxId, agboxv1.EventType_SANDBOX_DELETED)
		d.leftovers(sandbox.SandboxId)
	}
}

// leftovers fails the test when Docker holds anything of the sandbox.
func (d *Daemon) leftovers(sandboxID string) {
	d.t.Helper()
	if d.Engine != nil {
		dockertest.Leftovers(d.t, d.Engine, sandboxID)
	}
}

// Create creates a sandbox from spec, whose image is Image when it names none, and returns its id once it is READY.
func (d *Daemon) Create(spec *agboxv1.CreateSpec) string {
	d.t.Helper()
	if spec.Image == "" {
		spec.Image = d.Image
	}
	created, err := d.CreateSandbox(d.t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: spec})
	if err != nil {
		d.t.Fatal(err)
	}
	id := created.Sandbox.SandboxId
	d.Await(id, agboxv1.EventType_SANDBOX_READY)
	return id
}

// Delete deletes a sandbox, returns its events once it is DELETED, and fails the test when Docker holds any of it.
func (d *Daemon) Delete(sandboxID string) []*agboxv1.SandboxEvent {
	d.t.Helper()
	if _, err := d.DeleteSandbox(d.t.Context(), &agboxv1.DeleteSandboxRequest{SandboxId: sandboxID}); err != nil {
		d.t.Fatal(err)
	}
	events := d.Await(sandboxID, agboxv1.EventType_SANDBOX_DELETED)
	d.leftovers(sandboxID)
	return events
}

// Await returns the sandbox's events up to the first of the given type, and fails the test when the sandbox becomes
// FAILED instead.
func (d *Daemon) Await(sandboxID string, kind agboxv1.EventType) []*agboxv1.SandboxEvent {
	d.t.Helper()
	return d.AwaitMatch(sandboxID, 0, func(e *agboxv1.SandboxEvent) bool {
		if e.EventType == agboxv1.EventType_SANDBOX_FAILED && kind != agboxv1.EventType_SANDBOX_DELETED && kind != e.EventType {
			d.t.Fatalf("sandbox %s failed: %v", sandboxID, e.GetSandboxPhase())
		}
		return e.EventType == kind
	})
}

// AwaitMatch returns the events after from, up to the first that done accepts.
func (d *Daemon) AwaitMatch(sandboxID string, from uint64, done func(*agboxv1.SandboxEvent) bool) []*agboxv1.SandboxEvent {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	stream, err := d.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: sandboxID, FromSequence: from})
	if err != nil {
		d.t.Fatal(err)
	}
	defer stream.Close()
	var events []*agboxv1.SandboxEvent
	for {
		event, err := stream.Recv()
		if err != nil {
			d.t.Fatalf("events of %s ended after %v: %v", sandboxID, events, err)
		}
		events = append(events, event)
		if done(event) {
			return events
		}
	}
}

// Exec runs a command to its end and returns the event that tells it, and its output.
func (d *Daemon) Exec(sandboxID string, command ...string) (end *agboxv1.ExecEventDetails, stdout, stderr string) {
	d.t.Helper()
	created := d.Begin(&agboxv1.CreateExecRequest{SandboxId: sandboxID, Command: command})
	return d.ExecEnd(sandboxID, created.ExecId), d.Read(created.StdoutLogPath), d.Read(created.StderrLogPath)
}

// Begin has an exec accepted.
func (d *Daemon) Begin(request *agboxv1.CreateExecRequest) *agboxv1.CreateExecResponse {
	d.t.Helper()
	created, err := d.CreateExec(d.t.Context(), request)
	if err != nil {
		d.t.Fatal(err)
	}
	return created
}

// started names the pipe by which Script tells that it has come to its end.
const started = "/tmp/started"

// Script runs lines of shell and then has the shell replaced by "sleep 300". It returns the exec's id once all that
// comes before the sleep has happened. One at a time, in a sandbox with busybox.
func (d *Daemon) Script(sandboxID, lines string) (execID string) {
	d.t.Helper()
	if end, _, stderr := d.Exec(sandboxID, "sh", "-c", "rm -f "+started+"; mkfifo "+started); end.ExitCode != 0 {
		d.t.Fatalf("mkfifo: %v, %s", end, stderr)
	}
	script := lines + "\n: >" + started + "\nexec sleep 300"
	created := d.Begin(&agboxv1.CreateExecRequest{SandboxId: sandboxID, Command: []string{"sh", "-c", script}})
	if end, _, stderr := d.Exec(sandboxID, "cat", started); end.ExitCode != 0 {
		d.t.Fatalf("cat: %v, %s", end, stderr)
	}
	return created.ExecId
}

// ExecEnd waits for the end of an exec.
func (d *Daemon) ExecEnd(sandboxID, execID string) *agboxv1.ExecEventDetails {
	d.t.Helper()
	events := d.AwaitMatch(sandboxID, 0, func(e *agboxv1.SandboxEvent) bool {
		return e.GetExec().GetExecId() == execID && e.EventType != agboxv1.EventType_EXEC_STARTED
	})
	return events[len(events)-1].GetExec()
}

// Read returns the text of a file.
func (d *Daemon) Read(path string) string {
	d.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(text)
}
