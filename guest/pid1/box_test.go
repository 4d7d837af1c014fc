package pid1_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

const (
	passwd = "root:x:0:0:root:/root:/bin/sh\nagbox:x:1000:1000::/home/agbox:/bin/sh\nother:x:1001:1001::/home/other:/bin/sh\n"
	groups = "root:x:0:\nagbox:x:1000:\nother:x:1001:\ndialout:x:20:agbox\n"
)

// box is agbox-init as PID 1 of its own pid, mount and network namespaces, in a root directory of
// its own, with a Link at the other end of its socket.
type box struct {
	testing.TB
	stageConfig
	logs   string
	link   *link.Link
	cmd    *exec.Cmd
	stderr *strings.Builder
	gone   chan struct{} // closed when init has ended
	serial atomic.Int64

	held     bool        // it was made ahead
	away     sync.Mutex  // held: init is not let in
	impostor atomic.Bool // the test itself passes for init
}

// newBox prepares the root directory; start runs init in it.
func newBox(t testing.TB) *box {
	t.Helper()
	if os.Getuid() != 0 {
		skiplog.Skip(t, "needs root: init runs in new pid, mount and network namespaces")
	}
	if _, err := os.Stat("/bin/busybox"); err != nil {
		skiplog.Skip(t, fmt.Sprint("needs /bin/busybox (Debian package busybox-static): ", err))
	}
	b := &box{TB: t, logs: t.TempDir(), stderr: new(strings.Builder), gone: make(chan struct{})}
	b.Root = t.TempDir()
	b.Env = []string{"PATH=/bin:/usr/bin", "HOME=/root", "MARK=image"}
	for dir := b.Root; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) { // uid 1000 has to get here
		b.check(os.Chmod(dir, 0o755))
	}
	for _, dir := range []string{"bin", "proc", "dev/pts", "tmp", "etc", "root", "home/agbox", ".agbox/run"} {
		b.check(os.MkdirAll(filepath.Join(b.Root, dir), 0o755))
	}
	b.install(initBinary, ".agbox/init")
	b.install("/bin/busybox", "bin/busybox")
	for _, name := range []string{"sh", "sleep", "true", "false", "cat", "setsid", "id", "pwd", "kill", "ls", "grep", "head", "mkdir", "touch", "rm", "dd", "env", "yes", "stty", "tty"} {
		b.check(os.Symlink("busybox", filepath.Join(b.Root, "bin", name)))
	}
	for name, fd := range map[string]string{"stdin": "0", "stdout": "1", "stderr": "2"} {
		b.check(os.Symlink("/proc/self/fd/"+fd, filepath.Join(b.Root, "dev", name)))
	}
	b.check(os.Symlink("pts/ptmx", filepath.Join(b.Root, "dev/ptmx")))
	b.check(syscall.Mknod(filepath.Join(b.Root, "dev/tty"), syscall.S_IFCHR, 5<<8))
	b.check(os.Chmod(filepath.Join(b.Root, "dev/tty"), 0o666))
	b.write("dev/null", "", 0o644)
	b.write("etc/passwd", passwd, 0o644)
	b.write("etc/group", groups, 0o644)
	return b
}

// in directs failures to a subtest while that runs.
func (b *box) in(t *testing.T) {
	outer := b.TB
	b.TB = t
	t.Cleanup(func() { b.TB = outer })
}

func (b *box) check(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *box) write(path, content string, mode os.FileMode) {
	b.Helper()
	path = filepath.Join(b.Root, path)
	// No test beside this one may fork meanwhile: what a child of its still has open for writing cannot be executed.
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(content), mode)
	syscall.ForkLock.RUnlock()
	b.check(err)
	b.check(os.Chmod(path, mode))
}

func (b *box) install(source, target string) {
	b.Helper()
	data, err := os.ReadFile(source)
	b.check(err)
	b.write(target, string(data), 0o755)
}

func (b *box) socket() string { return filepath.Join(b.Root, ".agbox/run/s") }

func (b *box) listen() {
	b.Helper()
	link, err := link.Listen(b.socket(), link.Owner{Verify: func(_ context.Context, pid int) error {
		switch {
		case pid == b.cmd.Process.Pid:
			b.away.Lock()
			defer b.away.Unlock()
			return nil
		case pid == os.Getpid() && b.impostor.Load():
			return nil
		}
		return errors.New("not the init of this sandbox")
	}, Held: b.held}, slog.New(slog.DiscardHandler))
	b.check(err)
	b.link = link
}

// start runs init with the given options and waits for its hello.
func (b *box) start(args ...string) *box {
	b.Helper()
	b.Args = args
	config, err := json.Marshal(b.stageConfig)
	b.check(err)
	b.cmd = exec.Command(os.Args[0])
	b.cmd.Env = []string{stageVariable + "=" + string(config)}
	b.cmd.Stderr, b.cmd.Stdout = b.stderr, b.stderr
	b.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	b.check(b.cmd.Start())
	go func() {
		b.cmd.Wait()
		close(b.gone)
	}()
	b.listen()
	b.Cleanup(func() {
		b.link.Close()
		b.cmd.Process.Kill()
		<-b.gone
		if b.stderr.Len() > 0 {
			b.Logf("init's stderr:\n%s", b.stderr)
		}
	})
	b.check(b.link.Connected(b.context()))
	return b
}

// context ends when something hangs.
func (b *box) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	b.Cleanup(cancel)
	return ctx
}

// outcome is a finished exec.
type outcome struct {
	protocol.Result
	stdout, stderr string
}

// spec makes an ExecSpec with files of its own; edits change it.
func (b *box) spec(argv []string, edits ...func(*link.ExecSpec)) link.ExecSpec {
	b.Helper()
	s := link.ExecSpec{ID: fmt.Sprintf("exec-%d", b.serial.Add(1)), Argv: argv, Grace: 10 * time.Second}
	for i, kind := range []string{"stdout", "stderr", "record"} {
		f, err := os.Create(filepath.Join(b.logs, s.ID+"."+kind))
		b.check(err)
		b.Cleanup(func() { f.Close() })
		s.Files[i] = f
	}
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

func (b *box) file(id, kind string) string {
	b.Helper()
	data, err := os.ReadFile(filepath.Join(b.logs, id+"."+kind))
	b.check(err)
	return string(data)
}

// wait runs s to its end, checks that the record says the same, and acknowledges.
func (b *box) wait(s link.ExecSpec) outcome {
	b.Helper()
	r, err := b.link.Exec(b.context(), s)
	b.check(err)
	b.link.Ack(s.ID)
	if record, ok := protocol.ParseRecord([]byte(b.file(s.ID, "record"))); !ok || record != r {
		b.Fatalf("record %+v (%v), result %+v", record, ok, r)
	}
	return outcome{r, b.file(s.ID, "stdout"), b.file(s.ID, "stderr")}
}

func (b *box) run(argv ...string) outcome {
	b.Helper()
	return b.wait(b.spec(argv))
}

func (b *box) sh(script string) outcome {
	b.Helper()
	return b.run("sh", "-c", script)
}

// expect fails unless the exec exited with code and wrote stdout.
func (b *box) expect(o outcome, code int, stdout string) {
	b.Helper()
	if o.ExitCode != code || o.stdout != stdout {
		b.Fatalf("exit code %d, stdout %q, stderr %q, %s %s; want exit code %d, stdout %q",
			o.ExitCode, o.stdout, o.stderr, o.ErrorCode, o.ErrorMessage, code, stdout)
	}
}

// background is an exec that goes on while the test does.
type background struct {
	*box
	link.ExecSpec
	output *os.File // what it writes to stdout
	cancel context.CancelFunc
	done   chan struct{}
	result protocol.Result
	err    error
}

// begin starts a script and returns once it has written the line "ready".
func (b *box) begin(script string, edits ...func(*link.ExecSpec)) *background {
	b.Helper()
	return b.beginSpec(b.spec([]string{"sh", "-c", script}, edits...))
}

func (b *box) beginSpec(s link.ExecSpec) *background {
	b.Helper()
	r, w, err := os.Pipe()
	b.check(err)
	if s.ID == protocol.CommandID {
		if got := b.bootTo(w); got.State != protocol.BootHandedOver {
			b.Fatalf("%+v, stderr %q", got, b.file(s.ID, "stderr"))
		}
	}
	s.Files[0] = w
	bg := &background{box: b, ExecSpec: s, output: r}
	bg.attach()
	b.Cleanup(func() {
		bg.cancel()
		<-bg.done
		r.Close()
		w.Close()
	})
	r.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if line := bg.line(); line != "ready" {
		b.Fatalf("first line is %q, not ready", line)
	}
	return bg
}

// attach calls Exec, again if it was called before.
func (bg *background) attach() {
	var ctx context.Context
	ctx, bg.cancel = context.WithCancel(context.Background())
	link, done := bg.link, make(chan struct{})
	bg.done = done
	go func() {
		defer close(done)
		bg.result, bg.err = link.Exec(ctx, bg.ExecSpec)
	}()
}

// line reads one line of the output.
func (bg *background) line() string {
	bg.Helper()
	var line []byte
	for one := make([]byte, 1); ; {
		if _, err := io.ReadFull(bg.output, one); err != nil {
			bg.Fatalf("output ended after %q: %v", line, err)
		}
		if one[0] == '\n' {
			return string(line)
		}
		line = append(line, one[0])
	}
}

func (bg *background) wait() protocol.Result {
	bg.Helper()
	select {
	case <-bg.done:
	case <-time.After(2 * time.Minute):
		bg.Fatal("no result")
	}
	bg.check(bg.err)
	return bg.result
}

// processes lists the names of all living processes in the box but init.
func (b *box) processes() (all []string) {
	b.Helper()
	proc := fmt.Sprintf("/proc/%d/root/proc/", b.cmd.Process.Pid)
	entries, err := os.ReadDir(proc)
	b.check(err)
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err != nil || pid == 1 {
			continue
		}
		stat, _ := os.ReadFile(proc + e.Name() + "/stat") // pid (name) state ...
		name, state, _ := strings.Cut(string(stat), ") ")
		if state != "" && state[0] != 'Z' {
			all = append(all, name[strings.IndexByte(name, '(')+1:])
		}
	}
	return all
}

// ended waits for init to end and returns its exit code.
func (b *box) ended() int {
	b.Helper()
	select {
	case <-b.gone:
	case <-time.After(2 * time.Minute):
		b.Fatal("init does not end")
	}
	return b.cmd.ProcessState.ExitCode()
}

// memory tells init's resident set.
func (b *box) memory() string {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.cmd.Process.Pid))
	b.check(err)
	var all []string
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmHWM") || strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "RssAnon") {
			all = append(all, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(all, ", ")
}

// address is a name of the socket that is short enough for a stranger to dial.
func (b *box) address() string {
	return fmt.Sprintf("/proc/%d/root/.agbox/run/s", b.cmd.Process.Pid)
}
