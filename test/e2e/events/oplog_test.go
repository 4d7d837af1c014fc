package events_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

func oplogOf(t *testing.T, d *servertest.Daemon, id string) string {
	t.Helper()
	return servertest.ReadSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id}).End()[""]
}

// inOrder fails the test unless lines match the patterns in this order, others between them.
func inOrder(t *testing.T, oplog string, patterns ...string) {
	t.Helper()
	rest := oplog
	for _, pattern := range patterns {
		at := regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ` + pattern + `$`).FindStringIndex(rest)
		if at == nil {
			t.Errorf("no line is %s, or it comes too early, in\n%s", pattern, oplog)
			return
		}
		rest = rest[at[1]:]
	}
}

// TestOplog is a whole life as its oplog tells it, followed from the first moment to the last.
func TestOplog(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	source := filepath.Join(t.TempDir(), "tree")
	if err := errors.Join(os.Mkdir(source, 0o755), os.WriteFile(filepath.Join(source, "file"), make([]byte, 3000), 0o644)); err != nil {
		t.Fatal(err)
	}
	db, extra := servertest.Web(d, "db"), servertest.Web(d, "extra")
	db.Envs["PASSWORD"] = "the-service-secret"
	db.PostStartOnPrimary = []string{`echo "hook says $PASSWORD"; : the-hook-secret`, "true"}
	const id = "oplog-box"
	if _, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{
		Image: d.Variant(dockertest.EntrypointPrepares), Envs: map[string]string{"TOKEN": "the-primary-secret"},
		Copies:           []*agboxv1.CopySpec{{Source: source, Target: "/srv/tree"}},
		RequiredServices: []*agboxv1.ServiceSpec{db}, OptionalServices: []*agboxv1.ServiceSpec{extra},
	}}); err != nil {
		t.Fatal(err)
	}
	follower := servertest.ReadSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Source: "operations", Follow: true})
	follower.Until("", "create: sandbox ready")
	follower.Until("", "serve: service extra healthy")
	d.Await(id, agboxv1.EventType_SANDBOX_READY)
	if got := oplogOf(t, d, id); !strings.HasPrefix(got, follower.Got[""].String()[:100]) {
		t.Errorf("the follower has read %q of %q", follower.Got[""], got)
	}
	lockAll(t, filepath.Join(d.Dir(), "exec-logs", id), filepath.Join(d.Dir(), "run", id))
	if _, seen, _ := d.Exec(id, "ls", "-AR", "/var/log/agents-sandbox", "/.agbox"); strings.Contains(seen, "operation-logs") || strings.Contains(seen, "older") {
		t.Errorf("the sandbox sees %s", seen)
	}
	for _, change := range []struct {
		ask func() error
		to  agboxv1.SandboxState
	}{
		{func() error {
			_, err := d.PauseSandbox(t.Context(), &agboxv1.PauseSandboxRequest{SandboxId: id})
			return err
		}, agboxv1.SandboxState_SANDBOX_STATE_PAUSED},
		{func() error {
			_, err := d.UnpauseSandbox(t.Context(), &agboxv1.UnpauseSandboxRequest{SandboxId: id})
			return err
		}, servertest.Ready},
		{func() error {
			_, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id})
			return err
		}, servertest.Stopped},
		{func() error {
			_, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id})
			return err
		}, servertest.Ready},
	} {
		if err := change.ask(); err != nil {
			t.Fatal(err)
		}
		waited, err := d.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id,
			States: []agboxv1.SandboxState{change.to}, Timeout: durationpb.New(time.Minute)})
		if err != nil || !waited.Reached {
			t.Fatalf("not %v: %v, %v", change.to, waited, err)
		}
	}
	follower.Until("", "engine: container agbox-primary-oplog-box ended") // which comes by a way of its own
	follower.Until("", "engine: service db: health_status: healthy")
	d.Delete(id)
	oplog := follower.End()[""]
	inOrder(t, oplog,
		`create: image \S+ found in \d+ ms`, `create: container agbox-primary-oplog-box made in \d+ ms`,
		`create: \S+/tree copied to /srv/tree with \d{4,} bytes in \d+ ms`, `create: service db started in \d+ ms`,
		`create: service db healthy in \d+ ms`, `create: container agbox-primary-oplog-box started in \d+ ms`,
		`create: entrypoint done in \d+ ms`, `create: hook 0 of service db done in \d+ ms`,
		`create: hook 0 of service db: its output: stdout: hook says \*\*\*`, `create: hook 1 of service db done in \d+ ms`,
		`create: sandbox ready in \d+ ms`, `serve: service extra healthy in \d+ ms`,
		`pause: sandbox paused in \d+ ms`, `unpause: sandbox unpaused in \d+ ms`,
		`stop: container agbox-primary-oplog-box stopped in \d+ ms`, `stop: service (db|extra) stopped in \d+ ms`,
		`stop: sandbox stopped in \d+ ms`, `resume: service db healthy in \d+ ms`, `resume: sandbox ready in \d+ ms`,
		`remove: container agbox-\S+ removed in \d+ ms`, `remove: network agbox-net-oplog-box removed in \d+ ms`,
		`remove: sandbox removed in \d+ ms`)
	for _, pattern := range []string{
		`create: network agbox-net-oplog-box made in \d+ ms`, `create: container of service db made in \d+ ms`,
		`create: service db: its check ended with 0 after \d+ ms: .*`, `engine: service db: health_status: healthy`,
		`serve: container of service extra made in \d+ ms`,
		`engine: container agbox-primary-oplog-box ended with exit code \d+`,
	} {
		inOrder(t, oplog, pattern)
	}
	for _, secret := range []string{"the-service-secret", "the-hook-secret", "the-primary-secret", "hello from db"} {
		if strings.Contains(oplog, secret) {
			t.Errorf("%s is in the oplog", secret)
		}
	}
	if after := oplogOf(t, d, id); !strings.HasPrefix(after, oplog) {
		t.Errorf("after the deletion the oplog is\n%s\nand not\n%s", after, oplog)
	}
	if got := servertest.ReadSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, TailBytes: new(uint64(1))}).End()[""]; got != "\n" {
		t.Errorf("the last byte is %q", got)
	}
}

// lockAll locks the directories and all files in them, as whoever sees them in a sandbox can.
func lockAll(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		paths := []string{dir}
		for _, entry := range entries {
			if entry.Type().IsRegular() {
				paths = append(paths, filepath.Join(dir, entry.Name()))
			}
		}
		for _, path := range paths {
			file, err := os.Open(path)
			if err == nil {
				t.Cleanup(func() { file.Close() })
				err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			}
			if err != nil {
				t.Fatalf("%s cannot be locked: %v", path, err)
			}
		}
	}
}

// TestOplogOfFailure: the oplog is the one place to look when a create failed.
func TestOplogOfFailure(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	hook, exits := servertest.Web(d, "hook"), servertest.Web(d, "exits")
	hook.PostStartOnPrimary = []string{"echo fine", "echo cannot migrate >&2; exit 9"}
	exits.Command = []string{"sh", "-c", "echo bad configuration >&2; exit 3"}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spec  *agboxv1.CreateSpec
		lines []string
	}{
		"missing image": {&agboxv1.CreateSpec{Image: "agbox-test/never-was:1", PullPolicy: "never"},
			[]string{`create: image agbox-test/never-was:1 not found after \d+ ms: .*is not on this engine.*`}},
		"hook": {&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{hook}}, []string{
			`create: hook 0 of service hook: its output: stdout: fine`,
			`create: hook 1 of service hook not done after \d+ ms: its hook \*\*\* ended with exit code 9; its output: stderr: cannot migrate`}},
		"unhealthy": {&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{servertest.Refusing(d, "license")}}, []string{
			`create: service license: its check ended with 1 after \d+ ms: port is closed`,
			`create: service license not healthy after \d+ ms: it is unhealthy .*no license found`}},
		"exits": {&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{exits}}, []string{
			`create: service exits not healthy after \d+ ms: it ended with exit code 3; .*bad configuration`}},
		"copy": {&agboxv1.CreateSpec{Copies: []*agboxv1.CopySpec{{Source: file, Target: "/bin/busybox/below-a-file"}}}, []string{
			`create: \S+/file not copied to /bin/busybox/below-a-file with \d+ bytes after \d+ ms: .*`}},
	} {
		if c.spec.Image == "" {
			c.spec.Image = d.Image
		}
		created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: c.spec})
		if err != nil {
			t.Fatal(err)
		}
		id := created.Sandbox.SandboxId
		servertest.FailureOf(t, d, id)
		oplog := oplogOf(t, d, id)
		t.Logf("%s:\n%s", name, oplog)
		inOrder(t, oplog, append(c.lines, `create: sandbox not ready after \d+ ms: .*`)...)
		if strings.Contains(oplog, "exit 9") {
			t.Errorf("a hook's command is in the oplog:\n%s", oplog)
		}
	}
}

// TestOplogOfCommand: the end of a container tells how the sandbox's command ended, which its own exit code does not.
func TestOplogOfCommand(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{Command: []string{"sh", "-c", "sleep 0.2; exit 7"}})
	follower := servertest.ReadSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Source: "operations", Follow: true})
	follower.Until("", "its command had ended with exit code 7")
	d.Delete(id)
}

// TestOplogFollower: over a restart of the daemon and over the drop of the oldest half nothing is missing or comes twice.
func TestOplogFollower(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	before := oplogOf(t, d, id)
	stream := servertest.ReadSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Follow: true})
	stream.Until("", before)
	d.Restart()
	var err error
	for err == nil {
		err = stream.Next()
	}
	servertest.Refused(t, err, codes.Unavailable, "DAEMON_SHUTTING_DOWN", "")
	if after := oplogOf(t, d, id); !strings.HasPrefix(after, before) {
		t.Errorf("a restart made\n%s\nof\n%s", after, before)
	}

	follower := servertest.ReadSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Follow: true})
	second := servertest.ReadSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, Follow: true})
	path := filepath.Join(d.Dir(), "operation-logs", id, "log")
	write := func(text string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			_, err = file.WriteString(text)
		}
		if err = errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 4 {
		// As many months would, once with so much at a time that it cannot be on its way to who does not read.
		var filler strings.Builder
		padding := 64
		if round == 1 {
			padding = 5000
		}
		for i := range 6500 {
			fmt.Fprintf(&filler, "filler %d %d %s\n", round, i, strings.Repeat("x", padding))
		}
		write(filler.String())
		for _, ask := range []func() error{
			func() error {
				_, err := d.PauseSandbox(t.Context(), &agboxv1.PauseSandboxRequest{SandboxId: id})
				return err
			},
			func() error {
				_, err := d.UnpauseSandbox(t.Context(), &agboxv1.UnpauseSandboxRequest{SandboxId: id})
				return err
			},
		} {
			if err := ask(); err != nil {
				t.Fatal(err)
			}
			if _, err := d.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id, Timeout: durationpb.New(time.Minute)}); err != nil {
				t.Fatal(err)
			}
		}
		words := fmt.Sprintf("round %d\n", round) // of which no event tells
		write(words)
		follower.Until("", words)
		second.Until("", words)
	}
	d.Delete(id)
	all := follower.End()[""]
	if other := second.End()[""]; other[:len(other)/2] != all[:len(other)/2] {
		t.Error("two followers read two stories")
	}
	for round := range 4 {
		for _, i := range []int{0, 3000, 6499} {
			if line := fmt.Sprintf("filler %d %d ", round, i); strings.Count(all, line) != 1 {
				t.Errorf("%q comes %d times", line, strings.Count(all, line))
			}
		}
	}
	for line, want := range map[string]int{"create: sandbox ready": 1, "pause: sandbox paused": 4, "unpause: sandbox unpaused": 4, "remove: sandbox removed": 1} {
		if got := strings.Count(all, " "+line); got != want {
			t.Errorf("%q comes %d times, not %d", line, got, want)
		}
	}
	kept := oplogOf(t, d, id)
	if len(kept) > 1<<20 || strings.Contains(kept, "filler 0 0 ") || !strings.Contains(kept, "remove: sandbox removed") {
		t.Errorf("there are %d bytes", len(kept))
	}
	inOrder(t, kept, `log: the oldest \d+ bytes were dropped`)
	const most = 700 << 10 // more than a half
	if got := servertest.ReadSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id, TailBytes: new(uint64(most))}).End()[""]; got != kept[len(kept)-most:] {
		t.Errorf("the tail has %d bytes", len(got))
	}
}

// TestOplogIsNobodysFailure: a oplog that cannot be written is no reason to fail.
func TestOplogIsNobodysFailure(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	const id = "no-oplog"
	_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: d.Image, Lazy: true}})
	if err == nil { // what no sandbox is known for would be removed
		err = os.MkdirAll(filepath.Join(d.Dir(), "operation-logs", id, "log"), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	if end, _, stderr := d.Exec(id, "true"); end.ExitCode != 0 {
		t.Fatal(stderr)
	}
	err = servertest.ReadSandboxLog(t, d.Client, &agboxv1.ReadSandboxLogRequest{SandboxId: id}).Next()
	servertest.Refused(t, err, codes.Internal, "INTERNAL", "", "log is d")
	d.Delete(id)
}

// TestOplogOfPull: when a pull began, and how much it brought in what time; the next create finds the image.
func TestOplogOfPull(t *testing.T) {
	t.Parallel()
	api, registry := dockertest.Engine(t), dockertest.NewRegistry(t, false)
	ref, _ := registry.Push(t, api, "agbox-test/oplog:a", 3)
	d := servertest.Start(t)
	for _, lines := range [][]string{
		{`create: image \S+/agbox-test/oplog:a: its pull has begun`, `create: image \S+/agbox-test/oplog:a pulled with \d{4,} bytes in \d+ ms`},
		{`create: image \S+/agbox-test/oplog:a found in \d+ ms`},
	} {
		id := servertest.Accepted(t, d, &agboxv1.CreateSpec{Image: ref})
		d.AwaitMatch(id, 0, servertest.CreateEnded)
		inOrder(t, oplogOf(t, d, id), lines...)
	}
}
