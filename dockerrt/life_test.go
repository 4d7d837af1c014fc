package dockerrt_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// TestCommandRunsOncePerLife: a start that an earlier process of the daemon had brought to the sandbox's own command is carried
// on, or has failed where the container ended meanwhile; the command is not run again before the next life.
func TestCommandRunsOncePerLife(t *testing.T) {
	s := newSite(t)
	d, ctx := s.start(), t.Context()
	shared := t.TempDir()
	spec := &agboxv1.CreateSpec{Image: dockertest.TinyImage(t, s.engine, dockertest.Busybox), User: "root",
		Mounts:  []*agboxv1.MountSpec{{Source: shared, Target: "/shared", Writable: true}},
		Command: []string{"sh", "-c", "echo x >> /shared/runs; : > /shared/run; sleep 1000"}}
	run := filepath.Join(shared, "run") // whoever opens it waits for the other
	if err := syscall.Mkfifo(run, 0o600); err != nil {
		t.Fatal(err)
	}
	const id = "Life-1"
	defer func() { // before the last process ends
		if err := d.Remove(context.Background(), id); err != nil {
			t.Error(err)
		}
	}()
	if _, err := d.Create(ctx, id, "1", spec, ignore); err != nil {
		t.Fatal(err)
	}
	ran := func(want int, now bool) {
		t.Helper()
		if now {
			if _, err := os.ReadFile(run); err != nil {
				t.Fatal(err)
			}
		}
		runs, err := os.ReadFile(filepath.Join(shared, "runs"))
		if err != nil || bytes.Count(runs, []byte("\n")) != want {
			t.Fatalf("the command has run %q, %v; want %d", runs, err, want)
		}
	}
	again := func() *dockerrt.Docker {
		t.Helper()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = s.start()
		return d
	}
	kill := func() {
		t.Helper()
		ended, errs := s.engine.ContainerWait(ctx, "agbox-primary-"+id, "next-exit")
		if err := s.engine.ContainerKill(ctx, "agbox-primary-"+id, "KILL"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
		case err := <-errs:
			t.Fatal(err)
		}
	}
	refused := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "is not run twice: the primary container ended") {
			t.Fatalf("a life that ended unseen is carried on: %v", err)
		}
	}

	ran(1, true)
	// Nobody has heard that it is READY: the next process has it created once more.
	if _, err := again().Create(ctx, id, "1", spec, ignore); err != nil {
		t.Fatal(err)
	}
	ran(1, false)
	if err := d.Stop(ctx, id, nil); err != nil {
		t.Fatal(err)
	}
	for _, first := range []bool{true, false} {
		if _, err := again().Resume(ctx, id, "2", spec, ignore); err != nil {
			t.Fatal(err)
		}
		ran(2, first)
	}
	kill()
	_, err := again().Resume(ctx, id, "2", spec, ignore)
	refused(err)
	ran(2, false)
	for _, first := range []bool{true, false} {
		if _, err := again().Restart(ctx, id, "3", spec, ignore); err != nil {
			t.Fatal(err)
		}
		ran(3, first)
	}
	kill()
	_, err = again().Restart(ctx, id, "3", spec, ignore)
	refused(err)
	ran(3, false)
}
