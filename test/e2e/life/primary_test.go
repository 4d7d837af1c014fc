package life_test

import (
	"slices"
	"strings"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestCommand: the primary's own command runs with the sandbox; its end is told, and is the sandbox's unless told otherwise.
func TestCommand(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	const script = `echo run by $(id -un) in $PWD with $WORD >> /tmp/log; while [ ! -e /tmp/end ]; do sleep 0.05; done; exit 5`
	spec := func(more func(*agboxv1.CreateSpec)) *agboxv1.CreateSpec {
		s := &agboxv1.CreateSpec{Command: []string{"sh", "-c", script}, Envs: map[string]string{"WORD": "care"}}
		more(s)
		return s
	}
	t.Run("fails", func(t *testing.T) {
		id := d.Create(spec(func(*agboxv1.CreateSpec) {}))
		running := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sleep", "100"}}).ExecId
		d.Restart() // the command goes on, and its end is told by the next daemon
		if end, _, stderr := d.Exec(id, "touch", "/tmp/end"); end.ExitCode != 0 {
			t.Fatal(stderr)
		}
		if ended := servertest.CommandEnded(t, d, id, 0).GetCommand(); ended.ExitCode != 5 || ended.StartedAt == nil || ended.EndedAt == nil {
			t.Errorf("the command's end is %v", ended)
		}
		failed := servertest.FailureOf(t, d, id)
		if failed.ErrorCode != "SANDBOX_CRASHED" || !strings.Contains(failed.ErrorMessage, "exit code 5") {
			t.Errorf("FAILED says %v", failed)
		}
		if end := d.ExecEnd(id, running); end.ErrorCode == "EXEC_RESULT_LOST" {
			t.Errorf("the exec beside it ended as %v", end)
		}
		d.Delete(id)
	})
	t.Run("is kept", func(t *testing.T) {
		id := d.Create(spec(func(s *agboxv1.CreateSpec) { s.OnCommandEnd, s.User, s.WorkingDir = "keep", "agbox", "/tmp" }))
		d.Exec(id, "touch", "/tmp/end")
		ended := servertest.CommandEnded(t, d, id, 0)
		if ended.SandboxState != agboxv1.SandboxState_SANDBOX_STATE_READY {
			t.Errorf("after its end the sandbox is %v", ended)
		}
		if _, stdout, _ := d.Exec(id, "sh", "-c", "cat log; pwd"); stdout != "run by agbox in /tmp with care\n/tmp\n" {
			t.Errorf("it wrote %q", stdout)
		}
		d.Exec(id, "rm", "/tmp/end")
		if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
			t.Fatal(err)
		}
		stopped := d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
		if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
			t.Fatal(err)
		}
		last := stopped[len(stopped)-1].Sequence
		d.AwaitMatch(id, last, func(e *agboxv1.SandboxEvent) bool { return e.EventType == agboxv1.EventType_SANDBOX_READY })
		d.Exec(id, "touch", "/tmp/end")
		if again := servertest.CommandEnded(t, d, id, last).GetCommand(); again.ExitCode != 5 {
			t.Errorf("after a resume its end is %v", again)
		}
		if _, stdout, _ := d.Exec(id, "cat", "log"); strings.Count(stdout, "\n") != 2 {
			t.Errorf("after a resume its log is %q", stdout)
		}
	})
	t.Run("is stopped", func(t *testing.T) {
		id := d.Create(spec(func(*agboxv1.CreateSpec) {}))
		if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
			t.Fatal(err)
		}
		if ended := servertest.CommandEnded(t, d, id, 0).GetCommand(); ended.Signal != 15 {
			t.Errorf("a stop ends it with %v", ended)
		}
		d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	})
	t.Run("behind an entrypoint", func(t *testing.T) {
		id := d.Create(spec(func(s *agboxv1.CreateSpec) {
			s.Image, s.OnCommandEnd = d.Variant(dockertest.EntrypointPrepares), "keep"
		}))
		d.Exec(id, "touch", "/tmp/end")
		if ended := servertest.CommandEnded(t, d, id, 0).GetCommand(); ended.ExitCode != 5 {
			t.Errorf("its end is %v", ended)
		}
	})
	t.Run("does not exist", func(t *testing.T) {
		created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: d.Image, Command: []string{"no-such-thing"}}})
		if err != nil {
			t.Fatal(err)
		}
		failed := servertest.FailureOf(t, d, created.Sandbox.SandboxId)
		if failed.ErrorCode != "SANDBOX_COMMAND_FAILED" || !strings.Contains(failed.ErrorMessage, "no-such-thing") {
			t.Errorf("FAILED says %v", failed)
		}
		dockertest.Leftovers(t, d.Engine, created.Sandbox.SandboxId)
	})
}

// TestAdditions: what a spec says of the primary is what its commands find.
func TestAdditions(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{
		Image: d.Variant(dockertest.HealthChecked), CpuLimit: 0.5, MemoryLimit: 64 << 20, PidsLimit: 50, ShmSize: 8 << 20, ReadOnlyRoot: true,
		Tmpfs: []*agboxv1.TmpfsSpec{{Target: "/scratch", Size: 1 << 20}}, Hostname: "box.test",
		ExtraHosts: map[string]string{"registry.test": "192.0.2.7"}, CapAdd: []string{"IPC_LOCK"}, WorkingDir: "/workspace",
	})
	for _, c := range []struct{ script, want string }{
		{"hostname", "box.test\n"},
		{"grep registry.test /etc/hosts | tr '\\t' ' '", "192.0.2.7 registry.test\n"},
		{"touch /etc/x 2>&1 | grep -o 'Read-only.*'", "Read-only file system\n"},
		{"stat -c %U /workspace", "agbox\n"},
		{"echo mine > /workspace/file && cat /workspace/file", "mine\n"},
		{"head -c 2000000 /dev/zero > /scratch/big 2>/dev/null; stat -c %s /scratch/big", "1048576\n"},
		{"df -k /dev/shm | awk 'NR==2 {print $2}'", "8192\n"},
		{"ulimit -c", "0\n"},
		{"grep NoNewPrivs /proc/self/status | tr -d '\\t '", "NoNewPrivs:1\n"},
	} {
		if _, stdout, stderr := d.Exec(id, "sh", "-c", c.script); stdout != c.want {
			t.Errorf("%s: %q, %s; want %q", c.script, stdout, stderr, c.want)
		}
	}
	found, err := d.Engine.ContainerInspect(t.Context(), "agbox-primary-"+id)
	if err != nil {
		t.Fatal(err)
	}
	host := found.HostConfig
	if host.NanoCPUs != 5e8 || host.Memory != 64<<20 || *host.PidsLimit != 50 || !slices.Equal(host.CapAdd, []string{"CAP_IPC_LOCK"}) || !slices.Equal(host.CapDrop, []string{"CAP_MKNOD", "CAP_NET_RAW"}) || host.Privileged {
		t.Errorf("the engine holds %+v", host)
	}
	if found.State.Health != nil {
		t.Errorf("the engine runs the image's health check in the primary, as root: %+v", found.State.Health)
	}
	if end, _, _ := d.Exec(id, "sh", "-c", "i=0; while [ $i -lt 80 ]; do sleep 5 & i=$((i+1)); done; true"); end.ExitCode == 0 {
		t.Error("80 processes started under a limit of 50")
	}
	d.Delete(id)
}

// TestDiskLimitUnsupported: this engine's storage cannot, and a person hears so.
func TestDiskLimitUnsupported(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	info, err := d.Engine.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: d.Image, DiskLimit: 1 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	id := created.Sandbox.SandboxId
	events := d.AwaitMatch(id, 0, func(e *agboxv1.SandboxEvent) bool {
		return e.EventType == agboxv1.EventType_SANDBOX_READY || e.EventType == agboxv1.EventType_SANDBOX_FAILED
	})
	last := events[len(events)-1]
	if last.EventType == agboxv1.EventType_SANDBOX_READY {
		return // an engine on xfs with pquota
	}
	if failed := last.GetSandboxPhase(); failed.ErrorCode != "DISK_LIMIT_UNSUPPORTED" || !strings.Contains(failed.ErrorMessage, "leave disk_limit out") {
		t.Errorf("on %s FAILED says %v", info.Driver, failed)
	}
	dockertest.Leftovers(t, d.Engine, id)
}
