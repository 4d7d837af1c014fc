package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/server/socket"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// TestGuard: what somebody takes away from a daemon that runs comes back, and a database that was put in the place of its own
// is not written over.
func TestGuard(t *testing.T) {
	dockertest.Engine(t)
	withInit(t)
	dir := private(t)
	data, sockets := filepath.Join(dir, "data", "agents-sandbox"), filepath.Join(dir, "run", "agbox")
	database := filepath.Join(data, "ids.db")
	d := launch(t)
	answersAnew := func(what string) {
		t.Helper()
		d.until(what, func() bool {
			anew, err := raw.Dial()
			if err != nil {
				t.Fatal(err)
			}
			defer anew.Close()
			_, err = anew.Ping(t.Context(), &agboxv1.PingRequest{})
			return err == nil
		})
	}
	exists := func(path string) func() bool {
		return func() bool { _, err := os.Stat(path); return err == nil }
	}
	if err := os.Remove(filepath.Join(sockets, "agboxd.sock")); err != nil {
		t.Fatal(err)
	}
	answersAnew("it answers after its socket was removed")
	if err := os.RemoveAll(sockets); err != nil {
		t.Fatal(err)
	}
	answersAnew("it answers after its directory was removed")
	lock := filepath.Join(sockets, "agboxd.lock")
	d.until("it has its lock again", func() bool {
		text, err := os.ReadFile(lock)
		return err == nil && string(text) == fmt.Sprintln(os.Getpid())
	})
	if err := os.Rename(sockets, sockets+".x"); err != nil {
		t.Fatal(err)
	}
	answersAnew("it answers after its directory was renamed")
	for _, name := range []string{"ids.db", "instance"} {
		if err := os.Remove(filepath.Join(data, name)); err != nil {
			t.Fatal(err)
		}
		d.until(name+" is back", exists(filepath.Join(data, name)))
	}
	d.end()
	if info, err := os.Stat(filepath.Join(sockets, "agboxd.sock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it left its socket: %v, %v", info, err)
	}

	d = launch(t)
	if err := os.WriteFile(filepath.Join(dir, "theirs"), []byte("another file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "theirs"), database); err != nil {
		t.Fatal(err)
	}
	d.until("its own is saved", exists(database+".rescued"))
	_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "none"}})
	refusal, ok := errors.AsType[*raw.Error](err)
	if !ok || refusal.Code != codes.FailedPrecondition || refusal.Reason != "DATABASE_MOVED" || !strings.Contains(refusal.Message, ".rescued") {
		t.Errorf("a create is answered with %v", err)
	}
	d.signal()
	d.Client.Close()
	if code := <-d.ended; code != 1 || !strings.Contains(d.stderr.String(), database+".rescued") {
		t.Errorf("it ends with %d: %s", code, d.stderr.String())
	}
	if err := os.Rename(database+".rescued", database); err != nil {
		t.Fatal(err)
	}
	launch(t).end()
}

// TestGuardOfWhatGoesMeanwhile: what is removed again while the guard makes it is made once more.
func TestGuardOfWhatGoesMeanwhile(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "agbox") // the socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := paths{socket: filepath.Join(dir, "r", "s"), lock: filepath.Join(dir, "r", "l"), data: t.TempDir()}
	p.database = filepath.Join(p.data, "ids.db")
	db, err := persist.Open(p.database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	lock, err := lockHost(p.lock)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := socket.Listen(p.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, end := context.WithCancel(t.Context())
	const rounds = 100
	told := make(onMessage, rounds)
	wait := (&guard{p, db, listener, lock, slog.New(told)}).watch(ctx)
	defer func() { end(); wait() }()
	for i := range rounds {
		removed := make(chan struct{})
		told <- func() { os.RemoveAll(filepath.Dir(p.socket)); close(removed) }
		if err := os.Remove(p.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		<-removed
		deadline := time.Now().Add(time.Minute)
		for !exists(p.socket) || !exists(p.lock) {
			if time.Now().After(deadline) {
				t.Fatalf("socket %v and lock %v are there after removal %d", exists(p.socket), exists(p.lock), i)
			}
		}
	}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// onMessage is a log that does one of these things with each message.
type onMessage chan func()

func (o onMessage) Handle(context.Context, slog.Record) error {
	select {
	case do := <-o:
		do()
	default:
	}
	return nil
}

func (o onMessage) Enabled(context.Context, slog.Level) bool { return true }
func (o onMessage) WithAttrs([]slog.Attr) slog.Handler       { return o }
func (o onMessage) WithGroup(string) slog.Handler            { return o }
