package server_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/server"
	"github.com/agbox-dev/agbox/server/socket"
	"github.com/agbox-dev/agbox/test/servertest"
)

// fleet is a daemon whose sandboxes cost nothing, on a real socket and a real database.
type fleet struct {
	*raw.Client
	dir  string // of the database
	t    testing.TB
	fake *actorstest.Runtime
	db   *persist.DB
	stop func()
	// looked gets the name of an exec that the server looks at, unless one waits in it already.
	looked chan string
	// expired gets the ids of snapshots that were deleted, up to eight that nobody takes.
	expired chan string
}

type looker struct {
	*actorstest.Runtime
	looked, expired chan string
}

func (l looker) ExecLogs(sandboxID, execID string) (stdout, stderr string) {
	select {
	case l.looked <- execID:
	default:
	}
	return l.Runtime.ExecLogs(sandboxID, execID)
}

// DeleteSnapshot tells who waits for it.
func (l looker) DeleteSnapshot(ctx context.Context, id string) error {
	err := l.Runtime.DeleteSnapshot(ctx, id)
	if err == nil {
		select {
		case l.expired <- id:
		default:
		}
	}
	return err
}

func startFleet(t testing.TB, config actors.Config, fake *actorstest.Runtime) *fleet {
	t.Helper()
	return startServer(t, config, server.Config{Version: "test"}, fake)
}

func startServer(t testing.TB, config actors.Config, serving server.Config, fake *actorstest.Runtime) *fleet {
	t.Helper()
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	db, err := persist.Open(filepath.Join(dir, "ids.db"))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	looking := looker{fake, make(chan string, 1), make(chan string, 8)}
	system, err := actors.Start(config, db, looking, log)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s", "agboxd.sock")
	listener, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	service := server.New(serving, system, db, looking, log)
	served := make(chan error, 1)
	go func() { served <- service.Serve(listener) }()
	client, err := raw.Dial(raw.WithSocket(path))
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{Client: client, dir: dir, t: t, fake: fake, db: db, looked: looking.looked, expired: looking.expired}
	f.stop = sync.OnceFunc(func() {
		service.Shutdown()
		err := <-served
		system.Shutdown(context.Background())
		if err := errors.Join(err, db.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		client.Close()
		f.stop()
		os.RemoveAll(dir)
	})
	return f
}

// create has a sandbox accepted and waits until it is at rest.
func (f *fleet) create(id string, labels map[string]string) {
	f.t.Helper()
	_, err := f.CreateSandbox(f.t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id,
		CreateSpec: &agboxv1.CreateSpec{Image: "image", Labels: labels}})
	if err == nil {
		_, err = f.WaitSandbox(f.t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id})
	}
	if err != nil {
		f.t.Error(err)
	}
}

// run runs n commands to their ends, one after the other.
func (f *fleet) run(id string, n int) {
	f.t.Helper()
	for range n {
		created, err := f.CreateExec(f.t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}})
		if err == nil {
			_, err = f.WaitExec(f.t.Context(), &agboxv1.WaitExecRequest{ExecId: created.ExecId})
		}
		if err != nil {
			f.t.Error(err)
		}
	}
}

func (f *fleet) remove(id string) {
	f.t.Helper()
	_, err := f.DeleteSandbox(f.t.Context(), &agboxv1.DeleteSandboxRequest{SandboxId: id})
	if err == nil {
		_, err = f.WaitSandbox(f.t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id, States: []agboxv1.SandboxState{servertest.Deleted}})
	}
	if err != nil {
		f.t.Error(err)
	}
}

// each does something to sandboxes 0 to n-1 of a kind, all at once.
func each(n int, kind string, do func(id string)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { do(fmt.Sprintf("%s-%03d", kind, i)) })
	}
	group.Wait()
}

func (f *fleet) watch(req *agboxv1.WatchSandboxesRequest) *raw.Stream {
	f.t.Helper()
	stream, err := f.WatchSandboxes(f.t.Context(), req)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(stream.Close)
	return stream
}
