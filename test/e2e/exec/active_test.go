package exec_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

func execIDs(t *testing.T, d *servertest.Daemon, sandboxID *string) []string {
	t.Helper()
	list, err := d.ListActiveExecs(t.Context(), &agboxv1.ListActiveExecsRequest{SandboxId: sandboxID})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, exec := range list.Execs {
		if exec.State != agboxv1.ExecState_EXEC_STATE_RUNNING {
			t.Errorf("an active exec is %v", exec)
		}
		ids = append(ids, exec.ExecId)
	}
	return ids
}

// TestActiveExecs: those that run, newest first, and a cancel takes one of them and no other.
func TestActiveExecs(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	one, two := d.Create(&agboxv1.CreateSpec{}), d.Create(&agboxv1.CreateSpec{})
	first, second, other := d.Script(one, "setsid sleep 300 &"), d.Script(one, "setsid sleep 300 &"), d.Script(two, "")
	if got := execIDs(t, d, &one); !slices.Equal(got, []string{second, first}) {
		t.Errorf("in one sandbox %v are active, want %s, %s", got, second, first)
	}
	if got, want := execIDs(t, d, nil), []string{other, first, second}; !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("in all sandboxes %v are active, want %v", got, want)
	}
	if _, err := d.CancelExec(t.Context(), &agboxv1.CancelExecRequest{ExecId: first}); err != nil {
		t.Fatal(err)
	}
	if end := d.ExecEnd(one, first); end.ExecState != agboxv1.ExecState_EXEC_STATE_CANCELLED {
		t.Errorf("the cancelled command ended with %v", end)
	}
	if got := execIDs(t, d, &one); !slices.Equal(got, []string{second}) {
		t.Errorf("after the cancel %v are active, want %s", got, second)
	}
	// A process that was just forked has its parent's name until it runs its own program.
	both := d.Begin(&agboxv1.CreateExecRequest{SandboxId: one, Timeout: durationpb.New(2 * time.Minute), Command: []string{"sh", "-c",
		`until [ "$(ps -o args | grep -cx 'sleep 300')" = 2 ]; do sleep 0.1; done`}})
	if end := d.ExecEnd(one, both.ExecId); end.ExitCode != 0 {
		_, stdout, _ := d.Exec(one, "ps", "-o", "pid,args")
		t.Errorf("of the command that goes on live %q, want it and its child: %v", stdout, end)
	}
}

// TestExecStatus: all that is known of an exec, while it runs and when it has ended.
func TestExecStatus(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	d.Exec(id, "mkfifo", "/tmp/go")
	request := &agboxv1.CreateExecRequest{
		SandboxId: id, ExecId: "exec-status", Cwd: "/tmp", Command: []string{"sh", "-c", "read line < go; exit $CODE"},
		EnvOverrides: map[string]string{"CODE": "5"},
	}
	created := d.Begin(request)
	check := func(state agboxv1.ExecState, code int32) *agboxv1.ExecStatus {
		t.Helper()
		got, err := d.GetExec(t.Context(), &agboxv1.GetExecRequest{ExecId: request.ExecId})
		if err != nil {
			t.Fatal(err)
		}
		exec := got.Exec
		if exec.SandboxId != id || exec.Cwd != "/tmp" || !slices.Equal(exec.Command, request.Command) || exec.EnvOverrides["CODE"] != "5" {
			t.Errorf("the exec is %v, want what was asked for", exec)
		}
		if exec.State != state || exec.ExitCode != code || exec.Error != "" || exec.LastEventSequence != servertest.NewestSequence(t, d, id) {
			t.Errorf("the exec is %v, want %v, %d, at %d", exec, state, code, servertest.NewestSequence(t, d, id))
		}
		if exec.StdoutLogPath != created.StdoutLogPath || exec.StderrLogPath != created.StderrLogPath {
			t.Errorf("the logs are at %s and %s", exec.StdoutLogPath, exec.StderrLogPath)
		}
		return exec
	}
	check(agboxv1.ExecState_EXEC_STATE_RUNNING, 0)
	d.Exec(id, "sh", "-c", "echo > /tmp/go")
	end := d.ExecEnd(id, request.ExecId)
	ended := check(agboxv1.ExecState_EXEC_STATE_FINISHED, 5)
	if ended.StartedAt == nil || ended.EndedAt.AsTime().Before(ended.StartedAt.AsTime()) || !ended.EndedAt.AsTime().Equal(end.EndedAt.AsTime()) {
		t.Errorf("it ran from %v to %v, the event says %v", ended.StartedAt, ended.EndedAt, end.EndedAt)
	}
}

// TestBurst: 50 execs at once in one sandbox have each their own output and result.
func TestBurst(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	const burst = 50
	var group sync.WaitGroup
	for i := range burst {
		group.Go(func() {
			_, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, ExecId: fmt.Sprintf("burst-%d", i),
				Command: []string{"sh", "-c", fmt.Sprintf("echo out %d; echo err %d >&2; exit %d", i, i, i)}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for i := range burst {
		execID := fmt.Sprintf("burst-%d", i)
		if end := d.ExecEnd(id, execID); end.ExecState != agboxv1.ExecState_EXEC_STATE_FINISHED || end.ExitCode != int32(i) {
			t.Errorf("%s ended with %v", execID, end)
		}
		got, err := d.GetExec(t.Context(), &agboxv1.GetExecRequest{ExecId: execID})
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{got.Exec.StdoutLogPath: "out", got.Exec.StderrLogPath: "err"} {
			if text, err := os.ReadFile(path); string(text) != fmt.Sprintf("%s %d\n", want, i) {
				t.Errorf("%s of %s holds %q, %v", want, execID, text, err)
			}
		}
	}
	if got := execIDs(t, d, nil); len(got) != 0 {
		t.Errorf("%v are active still", got)
	}
}

// TestBackground: what a command leaves in the background outlives its end, as on any machine.
func TestBackground(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	d.Exec(id, "mkfifo", "/tmp/in", "/tmp/out")
	if end, _, _ := d.Exec(id, "sh", "-c", "cat /tmp/in > /tmp/out 2> /dev/null &"); end.ExecState != agboxv1.ExecState_EXEC_STATE_FINISHED || end.ExitCode != 0 {
		t.Fatalf("the command ended with %v", end)
	}
	if end, stdout, _ := d.Exec(id, "sh", "-c", "echo alive > /tmp/in & cat /tmp/out"); stdout != "alive\n" {
		t.Errorf("its background process answers %q: %v", stdout, end)
	}
}

// TestOutputIsExact: byte for byte, by two streams at the same time.
func TestOutputIsExact(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	const lines = 1_000_000
	created := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id,
		Command: []string{"sh", "-c", fmt.Sprintf("seq 1 %d & seq 1 %d | tr 0-9 a-j >&2; wait", lines, lines)}})
	if end := d.ExecEnd(id, created.ExecId); end.ExitCode != 0 {
		t.Fatalf("the command ended with %v", end)
	}
	wantOut, wantErr := sha256.New(), sha256.New()
	var line, letters []byte
	for i := 1; i <= lines; i++ {
		line = append(strconv.AppendInt(line[:0], int64(i), 10), '\n')
		wantOut.Write(line)
		letters = append(letters[:0], line...)
		for at := range len(letters) - 1 {
			letters[at] += 'a' - '0'
		}
		wantErr.Write(letters)
	}
	for path, want := range map[string][]byte{created.StdoutLogPath: wantOut.Sum(nil), created.StderrLogPath: wantErr.Sum(nil)} {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got := sha256.New()
		if _, err := io.Copy(got, file); err != nil {
			t.Error(err)
		}
		file.Close()
		if !slices.Equal(got.Sum(nil), want) {
			t.Errorf("%s has the sum %s, want %s", filepath.Base(path), hex.EncodeToString(got.Sum(nil)), hex.EncodeToString(want))
		}
	}
}

// TestExecEndsWithoutDaemon: nobody listens when the command writes its last line and ends, and nothing of that is lost.
func TestExecEndsWithoutDaemon(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	shared := t.TempDir()
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go", "life"} {
		path := filepath.Join(shared, name)
		if err := syscall.Mkfifo(path, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	id := d.Create(&agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{{Source: shared, Target: "/shared", Writable: true}}})
	begin := func(end string) *agboxv1.CreateExecResponse {
		return d.Begin(&agboxv1.CreateExecRequest{SandboxId: id,
			Command: []string{"sh", "-c", "exec 3> /shared/life; read line < /shared/go; echo $line; " + end}})
	}
	exits := begin("exit 9")
	life, err := os.Open(filepath.Join(shared, "life")) // once the command has it open as well
	if err != nil {
		t.Fatal(err)
	}
	defer life.Close()
	d.Stop()
	if err := os.WriteFile(filepath.Join(shared, "go"), []byte("last words\n"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(life); err != nil { // ends with the command
		t.Fatal(err)
	}
	d.StartAgain()
	if end := d.ExecEnd(id, exits.ExecId); end.ExecState != agboxv1.ExecState_EXEC_STATE_FINISHED || end.ExitCode != 9 {
		t.Errorf("the command ended with %v", end)
	}
	if text, err := os.ReadFile(exits.StdoutLogPath); string(text) != "last words\n" {
		t.Errorf("its output is %q, %v", text, err)
	}
	if got := servertest.Kinds(d.Await(id, agboxv1.EventType_EXEC_FINISHED)); strings.Count(got, "EXEC_STARTED") != 1 {
		t.Errorf("the log is %s", got)
	}
}

// TestCancelGoesOnWithoutDaemon: once a cancel has reached the sandbox it ends in KILL with no daemon there, and the
// next run of the daemon tells so.
func TestCancelGoesOnWithoutDaemon(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	stubborn := d.Script(id, `trap "" TERM`)
	if _, err := d.CancelExec(t.Context(), &agboxv1.CancelExecRequest{ExecId: stubborn}); err != nil {
		t.Fatal(err)
	}
	d.Restart()
	if end := d.ExecEnd(id, stubborn); end.ExecState != agboxv1.ExecState_EXEC_STATE_CANCELLED || end.ExitCode != 137 || end.Signal != 9 {
		t.Errorf("the command ended with %v", end)
	}
}
