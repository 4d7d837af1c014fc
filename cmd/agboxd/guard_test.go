package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
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
