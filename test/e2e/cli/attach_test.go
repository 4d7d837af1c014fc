package cli_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

// cli runs agbox against a whole daemon on Docker.
type cli struct {
	*servertest.Daemon
	t    *testing.T
	env  []string
	path string
}

func startCLI(t *testing.T) *cli {
	t.Helper()
	path, err := dockertest.Program("agbox", "./cmd/agbox")
	if err != nil {
		t.Fatal(err)
	}
	d := servertest.Start(t)
	dir := filepath.Dir(filepath.Dir(d.Socket()))
	if err := os.Symlink(filepath.Dir(d.Socket()), filepath.Join(dir, "agbox")); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "TERM=vt100")
	return &cli{Daemon: d, t: t, env: env, path: path}
}

func (c *cli) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(c.t.Context(), c.path, append([]string{"sandbox"}, args...)...)
	cmd.Env = c.env
	return cmd
}

// terminal is one that a person sits at, with a run of agbox in it.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	pty    *os.File
	tty    *os.File // held, to look at how it is set after the run
	before unix.Termios
	read   sync.WaitGroup
	*servertest.Screen
}

func (c *cli) sit(rows, columns uint16, args ...string) *terminal {
	c.t.Helper()
	master, tty, err := pty.Open()
	if err == nil {
		err = pty.Setsize(master, &pty.Winsize{Rows: rows, Cols: columns})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	s := &terminal{t: c.t, cmd: c.command(args...), pty: master, tty: tty, Screen: servertest.NewScreen()}
	s.before = s.settings()
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = tty, tty, tty
	s.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	s.read.Go(func() {
		_, err := io.Copy(s, master)
		if err != nil && !errors.Is(err, unix.EIO) && !errors.Is(err, os.ErrClosed) {
			c.t.Error(err)
		}
	})
	c.t.Cleanup(func() {
		tty.Close()
		master.Close()
		s.read.Wait()
	})
	return s
}

func (s *terminal) settings() unix.Termios {
	s.t.Helper()
	settings, err := unix.IoctlGetTermios(int(s.tty.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return *settings
}

func (s *terminal) await(pattern string) {
	s.t.Helper()
	s.Await(s.t, pattern)
}

func (s *terminal) enter(keys string) {
	s.t.Helper()
	if _, err := s.pty.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

func (s *terminal) resize(rows, columns uint16) {
	s.t.Helper()
	if err := pty.Setsize(s.pty, &pty.Winsize{Rows: rows, Cols: columns}); err != nil {
		s.t.Fatal(err)
	}
}

// leave waits for the end of the run, which must have left the terminal as it was.
func (s *terminal) leave(code int) {
	s.t.Helper()
	stuck := time.AfterFunc(time.Minute, func() { _ = s.cmd.Process.Kill() })
	defer stuck.Stop()
	err := s.cmd.Wait()
	if got := s.cmd.ProcessState.ExitCode(); got != code {
		s.t.Fatalf("exit code %d, want %d (%v) after %q", got, code, err, s.Text())
	}
	if now := s.settings(); now != s.before {
		s.t.Errorf("the terminal is left as %+v, and was %+v", now, s.before)
	}
}

// TestShell: typing, window changes, detaching, attaching, and the exit code.
func TestShell(t *testing.T) {
	t.Parallel()
	testShell(t, startCLI(t))
}

func testShell(t *testing.T, c *cli) {
	t.Helper()
	id := c.Create(&agboxv1.CreateSpec{})
	s := c.sit(20, 70, "exec", id, "-it", "--exec-id", "shell", "--env", "PS1=$ ", "--", "sh")
	s.await(`\$ `)
	s.enter("stty size; echo $TERM; tty\r")
	s.await(`20 70\r\nvt100\r\n/dev/pts/\d+\r\n`)
	s.enter("sh -c 'trap \"stty size; exit\" WINCH; echo wait\"\"ing; sleep 300 & wait'\r")
	s.await(`waiting\r\n`)
	s.resize(31, 99)
	s.await(`31 99\r\n`)
	s.enter("sh -c 'echo run\"\"ning; exec sleep 300'\r")
	s.await(`running\r\n`)
	s.enter("\x03") // which is for the sleep alone
	s.await(`\$ `)
	s.enter("\x10\x11")
	s.await(`agbox: left exec shell, which goes on: agbox sandbox attach shell\r?\n`)
	s.leave(0)

	s = c.sit(40, 80, "attach", "shell")
	s.enter("stty size\r")
	s.await(`40 80\r\n`)
	other := c.sit(40, 80, "attach", "shell", "--from-start", "--no-stdin")
	other.await(`20 70\r+\nvt100\r+\n`) // its terminal is not raw, and adds its own
	s.enter("exit 9\r")
	s.leave(9)
	other.leave(9)
}

// TestEditor: vi takes the whole screen, and what was typed into it is in the sandbox.
func TestEditor(t *testing.T) {
	t.Parallel()
	c := startCLI(t)
	id := c.Create(&agboxv1.CreateSpec{})
	s := c.sit(12, 60, "exec", id, "-it", "--", "vi", "/tmp/poem")
	s.await(`(?s)~.*/tmp/poem`)
	s.enter("iroses are red\rviolets are blue")
	s.await(`violets are blue`)
	s.enter("\x1b")
	s.await(`\x1b\[2;16H`) // the cursor goes back by one
	s.resize(30, 100)
	s.await(`\x1b\[29;1H~`)
	s.enter(":wq\r")
	s.leave(0)
	if end, stdout, stderr := c.Exec(id, "cat", "/tmp/poem"); end.ExitCode != 0 || stdout != "roses are red\nviolets are blue\n" {
		t.Errorf("the file is %q, %s", stdout, stderr)
	}
}

// TestTop: it draws as many lines as the window has, also after that has changed.
func TestTop(t *testing.T) {
	t.Parallel()
	c := startCLI(t)
	id := c.Create(&agboxv1.CreateSpec{})
	for range 20 {
		c.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sleep", "301"}})
	}
	s := c.sit(12, 80, "exec", id, "-it", "--", "top", "-d", "1")
	page := func(lines int) string { // from its top to the next one's
		return fmt.Sprintf(`Mem: [^\n]*\n([^\n]*\n){%d}[^\n]*\x1b\[H\x1b\[JMem:`, lines-2)
	}
	s.await(page(12))
	s.resize(20, 80)
	s.await(page(20))
	s.enter("q")
	s.leave(0)
}

// TestPipe: input and output of a pipe, without a terminal, and how it ends.
func TestPipe(t *testing.T) {
	t.Parallel()
	testPipe(t, startCLI(t))
}

func testPipe(t *testing.T, c *cli) {
	t.Helper()
	id := c.Create(&agboxv1.CreateSpec{})
	data := bytes.Repeat([]byte("0123456789abcde\n"), 1<<18)
	cmd := c.command("exec", id, "-i", "--", "sh", "-c", "cat; echo done >&2; exit 3")
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(data), &stdout, &stderr
	err := cmd.Run()
	if cmd.ProcessState.ExitCode() != 3 || stderr.String() != "done\n" {
		t.Errorf("ended as %v, %q", err, stderr.String())
	}
	if sha256.Sum256(stdout.Bytes()) != sha256.Sum256(data) {
		t.Errorf("%d other bytes came back", stdout.Len())
	}

	// A command that reads no more is not waited for by our input.
	in, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	cmd = c.command("exec", id, "-i", "--", "sh", "-c", "read line; echo $line; exit 4")
	cmd.Stdin = in
	if _, err := hold.WriteString("one\ntwo\n"); err != nil {
		t.Fatal(err)
	}
	out, _ := cmd.Output()
	in.Close()
	if cmd.ProcessState.ExitCode() != 4 || string(out) != "one\n" {
		t.Errorf("ended as %v with %q", cmd.ProcessState, out)
	}

	cmd = c.command("exec", id, "-it", "--", "sh")
	out, _ = cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "-t needs a terminal") {
		t.Errorf("without a terminal: %v, %s", cmd.ProcessState, out)
	}
	out, _ = c.command("attach", "never-was").CombinedOutput()
	if !strings.Contains(string(out), "there is no exec never-was") {
		t.Errorf("of no exec: %s", out)
	}

	// Begun with its input open, and fed later.
	if out, err := c.command("exec", id, "-i", "-d", "--exec-id", "later", "--", "cat").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd = c.command("attach", "later")
	cmd.Stdin = strings.NewReader("fed\n")
	if out, err := cmd.Output(); err != nil || string(out) != "fed\n" {
		t.Errorf("attached later: %q, %v", out, err)
	}
}
