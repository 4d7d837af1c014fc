// Package sdktest is an agboxd for tests of programs that drive it, without Docker: the real service, with its checks, its
// state machine and its database, on a real socket, over sandboxes that cost nothing.
//
//	_, socket := sdktest.Start(t)
//	client, err := sdk.New(sdk.WithSocket(socket))
//
// What a program under test may rely on is what agboxd promises; what stands in for Docker behaves like this:
//
//   - Every image is there, and a sandbox is READY at once. ImageHold and ImageBroken are the exceptions, and OnStep makes
//     others.
//   - Commands are processes of this machine, run as the test itself in the directory of their logs, or are played by
//     OnCommand. Their terminals are pipes. Sandboxes' own commands run like execs.
//   - Files are in memory, empty at first, and commands do not see them. Services run, and write who they are;
//     networks, limits and mounts are accepted and do nothing. Snapshots hold nothing.
//   - Daemon.Shutdown and Serve restart the daemon as often as wanted: what it has recorded is kept, and commands go on.
//
// Whoever looks for goroutines that a test leaves behind excepts
// "github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1", which ends a second after the daemon.
package sdktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server"
	"github.com/agbox-dev/agbox/server/socket"
)

// Images with a life of their own; every other image becomes READY at once.
const (
	ImageHold   = "hold"   // stays PENDING until Release
	ImageBroken = "broken" // ends FAILED
)

// Version is what the daemon says of itself.
const Version = "test"

// Daemon is one agboxd. Its methods may be called from any goroutine, but for Serve, Shutdown and Close, which are one's.
type Daemon struct {
	// Clock gives the time of events; time.Now unless set before Serve.
	Clock func() time.Time
	// Findings are what Docker would have been found to be like; none unless set before Serve.
	Findings []*agboxv1.Finding

	dir      string
	runtime  *actorstest.Runtime
	released chan struct{}
	release  sync.Once
	stop     func() error // nil while nothing is served

	call    atomic.Pointer[CallHook]
	step    atomic.Pointer[StepHook]
	command atomic.Pointer[CommandHook]
}

// New returns a daemon that keeps its database, and in the folder logs what commands write, below dir. Close must follow.
func New(dir string) *Daemon {
	d := &Daemon{Clock: time.Now, dir: dir, runtime: actorstest.New(), released: make(chan struct{})}
	d.runtime.Logs = dir
	d.runtime.Before = d.before
	d.runtime.Play = d.play
	d.runtime.Usage = d.usage
	d.runtime.ServiceOutput = func(name string) (stdout, stderr string) {
		return "stdout of " + name + "\n", "stderr of " + name + "\n"
	}
	return d
}

// Start serves a daemon on a socket of its own until the test ends.
func Start(t testing.TB) (*Daemon, string) {
	t.Helper()
	dir := shortDir(t)
	d, path := New(dir), filepath.Join(dir, "agbox", "agboxd.sock")
	if err := d.Serve(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d, path
}

// shortDir is a directory for a socket, whose path t.TempDir may make too long.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Serve begins, or goes on where Shutdown has ended, and returns when clients can connect to the socket at path. Its folder is for
// this user alone then.
func (d *Daemon) Serve(path string) error {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	db, err := persist.Open(filepath.Join(d.dir, "ids.db"))
	if err != nil {
		return err
	}
	d.runtime.Findings = d.Findings
	log := slog.New(slog.DiscardHandler)
	system, err := actors.Start(actors.Config{Now: func() time.Time { return d.Clock() }}, db, d.runtime, log)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	end := func(ctx context.Context) error {
		system.Shutdown(ctx)
		return db.Close()
	}
	listener, err := socket.Listen(path)
	if err != nil {
		return errors.Join(err, end(context.Background()))
	}
	service := server.New(server.Config{Version: Version, Options: d.intercept()}, system, db, d.runtime, log)
	served := make(chan error, 1)
	go func() { served <- service.Serve(listener) }()
	d.stop = func() error {
		service.Shutdown()
		now, cancel := context.WithCancel(context.Background())
		cancel() // a held creation does not end by itself
		return errors.Join(<-served, end(now))
	}
	return nil
}

// Shutdown ends the daemon as a restart does: streams end, and its socket is gone. What is recorded stays, and what runs
// in sandboxes goes on. Without a daemon it does nothing.
func (d *Daemon) Shutdown() {
	if d.stop == nil {
		return
	}
	if err := d.stop(); err != nil {
		panic(fmt.Sprintf("sdktest: the daemon did not end in order: %v", err))
	}
	d.stop = nil
}

// Close shuts down, ends what still runs and waits for it.
func (d *Daemon) Close() {
	d.Shutdown()
	d.runtime.Close()
}

// usage is the same of every sandbox, and nothing but a process of its services.
func (d *Daemon) usage(id string) []*agboxv1.ContainerStats {
	stats := []*agboxv1.ContainerStats{{CpuTime: durationpb.New(1500 * time.Millisecond), MemoryBytes: 3 << 20, MemoryLimitBytes: 1 << 30, Pids: 2,
		NetworkReceivedBytes: 2048, NetworkSentBytes: 1024, DiskReadBytes: 4096, DiskWrittenBytes: 8192}}
	for _, service := range d.runtime.Spec(id).GetRequiredServices() {
		stats = append(stats, &agboxv1.ContainerStats{ServiceName: service.Name, Pids: 1})
	}
	return stats
}

// Release lets sandboxes of ImageHold become READY, for good.
func (d *Daemon) Release() { d.release.Do(func() { close(d.released) }) }
