package dockerrt_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// TestAttachFailsHere: what keeps a daemon that comes back from attaching to a command is no end of the command, which goes
// on meanwhile.
func TestAttachFailsHere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.start()
	id := s.config.Instance
	s.sandbox(d, id, &agboxv1.CreateSpec{Image: dockertest.TinyImage(t, s.engine, dockertest.Busybox)})
	request := &agboxv1.CreateExecRequest{SandboxId: id, ExecId: "exec-1",
		Command: []string{"sh", "-c", "mkfifo /tmp/gate; echo begun; cat /tmp/gate; exit 7"}}
	type end struct {
		result runtime.ExecResult
		err    error
	}
	run := func(ctx context.Context, d *dockerrt.Docker) <-chan end {
		ended := make(chan end, 1)
		go func() {
			result, err := d.Exec(ctx, request)
			ended <- end{result, err}
		}()
		return ended
	}
	ctx, leave := context.WithCancel(t.Context())
	first := run(ctx, d)
	stdout, _ := d.ExecLogs(id, "exec-1")
	for text := ""; text != "begun\n"; {
		content, _ := os.ReadFile(stdout)
		text = string(content)
	}
	leave()
	<-first
	d.Close()

	d = s.start()
	logs := filepath.Dir(stdout)
	if err := os.Rename(logs, logs+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(logs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second := run(t.Context(), d)
	select {
	case e := <-second:
		t.Errorf("the command ended with %+v, %v", e.result, e.err)
	case <-time.After(time.Second):
	}
	if err := os.Remove(logs); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(logs+".away", logs); err != nil {
		t.Fatal(err)
	}
	opens := &agboxv1.CreateExecRequest{SandboxId: id, ExecId: "exec-2", Command: []string{"sh", "-c", "echo > /tmp/gate"}}
	if result, err := d.Exec(t.Context(), opens); err != nil || result.ExitCode != 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	if e := <-second; e.err != nil || e.result.ExitCode != 7 {
		t.Errorf("the command ended with %+v, %v", e.result, e.err)
	}
}

// TestForeignName: a name that another daemon's sandbox has is said to be its, and is nobody's to remove.
func TestForeignName(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.start()
	id := s.config.Instance
	s.sandbox(d, id, &agboxv1.CreateSpec{Image: dockertest.TinyImage(t, s.engine, dockertest.Busybox)})
	other, _ := open(t, "instance-that-comes-later")
	err := other.Conflict(t.Context(), id)
	if err == nil || !strings.Contains(err.Error(), "another agboxd (instance "+s.config.Instance+")") || strings.Contains(err.Error(), "remove") {
		t.Errorf("the other daemon says %v", err)
	}
}

// TestCouldNotLook: an engine that does not answer as it should is no death of a sandbox.
func TestCouldNotLook(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.start()
	id, spec := s.config.Instance, &agboxv1.CreateSpec{Image: dockertest.TinyImage(t, s.engine, dockertest.Busybox)}
	s.sandbox(d, id, spec)
	served := &agboxv1.CreateSpec{Image: spec.Image, OptionalServices: []*agboxv1.ServiceSpec{{Name: "other", Image: spec.Image}}}
	for calls, spec := range map[string]*agboxv1.CreateSpec{`/containers/json$`: served, `/containers/[0-9a-f]+/json$`: spec} {
		s.use(fault(calls))
		if seen, err := d.Observe(t.Context(), id, spec); err == nil {
			t.Errorf("with %s refused it is seen as %+v", calls, seen)
		}
	}
	s.use()
	if seen, err := d.Observe(t.Context(), id, spec); err != nil || !seen.Alive {
		t.Errorf("then it is seen as %+v, %v", seen, err)
	}
}
