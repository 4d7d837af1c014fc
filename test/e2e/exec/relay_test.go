package exec_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/test/servertest"
)

// underneath runs shell in the sandbox as root by the engine's own exec, past the daemon, to its end.
func underneath(t *testing.T, d *servertest.Daemon, id, script string) {
	t.Helper()
	if err := beneath(t, d, id, script); err != nil {
		t.Fatal(err)
	}
}

// beneath is underneath for goroutines.
func beneath(t *testing.T, d *servertest.Daemon, id, script string) error {
	made, err := d.Engine.ContainerExecCreate(t.Context(), "agbox-primary-"+id,
		container.ExecOptions{User: "0", Cmd: []string{"sh", "-c", script}, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	stream, err := d.Engine.ContainerExecAttach(t.Context(), made.ID, container.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer stream.Close()
	var said strings.Builder
	if _, err := stdcopy.StdCopy(&said, &said, stream.Reader); err != nil {
		return err
	}
	if end, err := d.Engine.ContainerExecInspect(t.Context(), made.ID); err != nil || end.ExitCode != 0 {
		return fmt.Errorf("%s: %+v, %w: %s", script, end, err, said.String())
	}
	return nil
}

// TestRelayExec: what commands see and tell is the same by way of the engine, also when 100 run at once.
func TestRelayExec(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.ByEngine)
	id := d.Create(&agboxv1.CreateSpec{ReadOnlyRoot: true})
	found, err := d.Engine.ContainerInspect(t.Context(), "agbox-primary-"+id)
	if err != nil || len(found.HostConfig.Binds) > 0 {
		t.Fatalf("%v, %v", found.HostConfig, err)
	}
	for _, m := range found.Mounts {
		if m.Type == "bind" {
			t.Errorf("%s of this host is mounted at %s", m.Source, m.Destination)
		}
	}
	end, stdout, stderr := d.Exec(id, "sh", "-c", "echo out; id -un; echo err >&2; exit 3")
	if end.ExitCode != 3 || stdout != "out\nagbox\n" || stderr != "err\n" {
		t.Errorf("%v, %q, %q", end, stdout, stderr)
	}
	if end, _, _ := d.Exec(id, "no-such-command"); end.ErrorCode != "EXEC_COMMAND_NOT_FOUND" {
		t.Errorf("%v", end)
	}
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			created, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id,
				Command: []string{"sh", "-c", fmt.Sprintf("echo %d; exit %d", i, i)}})
			if err != nil {
				t.Error(err)
				return
			}
			waited, err := d.WaitExec(t.Context(), &agboxv1.WaitExecRequest{ExecId: created.ExecId})
			text, readErr := os.ReadFile(created.StdoutLogPath)
			if err != nil || readErr != nil || int(waited.Exec.ExitCode) != i || string(text) != fmt.Sprintln(i) {
				t.Errorf("exec %d: %v, %v, %q, %v", i, waited, err, text, readErr)
			}
		})
	}
	all.Wait()
	// Once all that they wrote is on this host, nothing of it stays in the sandbox.
	underneath(t, d, id, "until [ -z \"$(ls /.agbox/state /var/log/agents-sandbox | grep -v -e _primary -e : -e '^$')\" ]; do sleep 0.05; done")
}

// TestRelayEnds: each way to end a command.
func TestRelayEnds(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.ByEngine)
	id := d.Create(&agboxv1.CreateSpec{})
	signalled := d.Script(id, "")
	if _, err := d.SignalExec(t.Context(), &agboxv1.SignalExecRequest{ExecId: signalled, Signal: "USR1"}); err != nil {
		t.Fatal(err)
	}
	if end := d.ExecEnd(id, signalled); end.Signal != 10 {
		t.Errorf("signalled: %v", end)
	}
	cancelled := d.Script(id, "setsid sleep 300 &")
	if _, err := d.CancelExec(t.Context(), &agboxv1.CancelExecRequest{ExecId: cancelled}); err != nil {
		t.Fatal(err)
	}
	if end := d.ExecEnd(id, cancelled); end.ExecState != agboxv1.ExecState_EXEC_STATE_CANCELLED || processes(t, d, id, "sleep 300") > 0 {
		t.Errorf("cancelled: %v", end)
	}
	late := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sleep", "300"}, Timeout: durationpb.New(1)})
	if d.ExecEnd(id, late.ExecId); !execOf(t, d, late.ExecId).GetResources().GetTimedOut() {
		t.Errorf("timed out: %v", execOf(t, d, late.ExecId))
	}
	// What is written last, in a sandbox that stops, is not lost with its container.
	last := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c",
		"trap 'head -c 3000000 /dev/zero; echo bye; exit 5' TERM; : >/tmp/up; while :; do sleep 0.1; done"}})
	underneath(t, d, id, "until [ -e /tmp/up ]; do sleep 0.05; done")
	servertest.StopSandbox(t, d, id)
	if end := d.ExecEnd(id, last.ExecId); end.ExitCode != 5 {
		t.Errorf("stopped: %v", end)
	}
	if text := d.Read(last.StdoutLogPath); len(text) != 3000004 || !strings.HasSuffix(text, "bye\n") {
		t.Errorf("stopped: %d bytes", len(text))
	}
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id, States: []agboxv1.SandboxState{servertest.Ready}}); err != nil {
		t.Fatal(err)
	}
	if end, stdout, _ := d.Exec(id, "echo", "again"); end.ExitCode != 0 || stdout != "again\n" {
		t.Errorf("after the resume: %v, %q", end, stdout)
	}
}

func execOf(t *testing.T, d *servertest.Daemon, execID string) *agboxv1.ExecStatus {
	t.Helper()
	got, err := d.GetExec(t.Context(), &agboxv1.GetExecRequest{ExecId: execID})
	if err != nil {
		t.Fatal(err)
	}
	return got.Exec
}

// TestRelayMuch: as it went in, so it comes out.
func TestRelayMuch(t *testing.T) {
	t.Parallel()
	relayMuch(t, 8<<20)
}

func relayMuch(t *testing.T, size int) {
	t.Helper()
	d := servertest.Start(t, servertest.ByEngine)
	id := d.Create(&agboxv1.CreateSpec{})
	client := sdkClient(t, d)
	exec, err := client.CreateExec(t.Context(), id, []string{"cat"}, sdk.WithStdin())
	if err != nil {
		t.Fatal(err)
	}
	var out hashed
	attached, err := client.AttachExec(t.Context(), exec.ID, sdk.WithOutputFrom(0, 0), sdk.WithOutput(&out, nil))
	if err != nil {
		t.Fatal(err)
	}
	feedIn(t, attached, randomBytes(9, size))
	if end, err := attached.Wait(); err != nil || end.ExitCode != 0 {
		t.Errorf("ended as %+v, %v", end, err)
	}
	if out.n != int64(size) || out.sum(t) != sumOf(t, randomBytes(9, size)) {
		t.Errorf("%d bytes of %d came back, or others", out.n, size)
	}
}

// TestRelayDaemonAway: what happens while the daemon is away is known when it is back.
func TestRelayDaemonAway(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.ByEngine)
	id := d.Create(&agboxv1.CreateSpec{Command: []string{"sh", "-c", "echo one; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo two; exec sleep 300"}})
	exec := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c",
		"echo begun; : >/tmp/up; while [ ! -e /tmp/go ]; do sleep 0.1; done; yes | head -c 5000000; exit 7"}})
	underneath(t, d, id, "until [ -e /tmp/up ]; do sleep 0.05; done")
	d.Stop()
	underneath(t, d, id, "touch /tmp/go; until [ -s /.agbox/state/"+exec.ExecId+".record ]; do sleep 0.05; done")
	d.StartAgain()
	if end := d.ExecEnd(id, exec.ExecId); end.ExitCode != 7 {
		t.Errorf("%v", end)
	}
	want := "begun\n" + strings.Repeat("y\n", 2500000)
	if text := d.Read(exec.StdoutLogPath); sha256.Sum256([]byte(text)) != sha256.Sum256([]byte(want)) {
		t.Errorf("%d bytes of %d, or others", len(text), len(want))
	}
	if execOf(t, d, exec.ExecId).GetResources().GetStdoutBytes() != uint64(len(want)) {
		t.Errorf("%v", execOf(t, d, exec.ExecId))
	}
	servertest.Pause(t, d, id)
	d.Restart()
	if _, err := d.UnpauseSandbox(t.Context(), &agboxv1.UnpauseSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id, States: []agboxv1.SandboxState{servertest.Ready}}); err != nil {
		t.Fatal(err)
	}
	if end, stdout, _ := d.Exec(id, "echo", "again"); end.ExitCode != 0 || stdout != "again\n" {
		t.Errorf("after the pause: %v, %q", end, stdout)
	}
	if text := d.Read(d.Dir() + "/exec-logs/" + id + "/_primary.stdout.log"); text != "one\ntwo\n" {
		t.Errorf("the main command has said %q", text)
	}
}

// TestRelayKilled: the relay is killed inside the sandbox, again and again, and no output is lost or repeated.
func TestRelayKilled(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.ByEngine)
	id := d.Create(&agboxv1.CreateSpec{})
	exec := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c",
		"for n in 1 2 3; do : >/tmp/up$n; while [ ! -e /tmp/go$n ]; do echo $n; done; done; exec seq 300000"}})
	for n := 1; n <= 3; n++ {
		underneath(t, d, id, fmt.Sprintf("until [ -e /tmp/up%d ]; do sleep 0.05; done; "+
			"for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | grep -q '^/.agbox/init relay' && kill -9 ${p#/proc/}; done; touch /tmp/go%d", n, n))
	}
	if end := d.ExecEnd(id, exec.ExecId); end.ExitCode != 0 {
		t.Errorf("%v", end)
	}
	text := d.Read(exec.StdoutLogPath)
	if uint64(len(text)) != execOf(t, d, exec.ExecId).GetResources().GetStdoutBytes() || !strings.HasSuffix(text, "\n"+servertest.Numbers(300000)) {
		t.Errorf("%d bytes, of %v", len(text), execOf(t, d, exec.ExecId))
	}
	var all []servertest.Entry
	for i := range 200 { // these through two
		all = append(all, servertest.File(fmt.Sprintf("up/%d/f", i), strings.Repeat("x", 10_000), 0o600))
	}
	if got := servertest.Upload(t, d, id, "/tmp", servertest.Archive(t, all...)); got.Bytes != 2_000_000 {
		t.Errorf("%v", got)
	}
	if got := servertest.Download(t, d, id, "/tmp/up"); len(got) != 401 || len(got["up/199/f"].Content) != 10_000 {
		t.Errorf("%d files came back", len(got))
	}
	running := &agboxv1.ListFilesRequest{SandboxId: id, Path: "/tmp"}
	for range 20 { // the records of each come through a pipe
		if files, _ := servertest.ListFiles(t, d, running); len(files) < 6 {
			t.Errorf("%q", files)
		}
	}
}

// TestRelayInputOverRestart: what a command has not read when the daemon ends, it reads later, once.
func TestRelayInputOverRestart(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.ByEngine)
	id := d.Create(&agboxv1.CreateSpec{})
	exec := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Stdin: true, Command: []string{"sh", "-c",
		"dd bs=1 count=10 2>/dev/null; until [ -e /tmp/go ]; do sleep 0.05; done; exec cat"}}).ExecId
	start := startOf(&agboxv1.AttachExecStart{ExecId: exec, StdoutOffset: new(uint64(0))})
	text := servertest.Numbers(40000) // more than the pipe in the sandbox and the relay hold, and less than with the pipe on this host
	first := attachRaw(t, d, start, stdinOf(text))
	if _, err := drainAttach(first, func(a *attached) bool { return a.taken == uint64(len(text)) && a.stdout.Len() == 10 }); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d.Restart()
		if _, err := d.Ping(t.Context(), &agboxv1.PingRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	second := attachRaw(t, d, start, stdinOf("end\n"), closeOf)
	if _, err := drainAttach(second, func(a *attached) bool { return a.taken == 4 }); err != nil {
		t.Fatal(err)
	}
	d.Restart() // after the end of the input, which the command has not seen
	underneath(t, d, id, "touch /tmp/go")
	if got, err := drainAttach(attachRaw(t, d, start), nil); err != nil || got.stdout.String() != text+"end\n" || got.ended.GetExitCode() != 0 {
		t.Errorf("%d bytes of %d came back, or others: %v, %v", got.stdout.Len(), len(text)+4, got.ended, err)
	}
}
