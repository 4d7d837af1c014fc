package pid1_test

import (
	"context"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

var (
	mainCommand = link.ExecSpec{ID: protocol.CommandID}
	handedOver  = link.BootStatus{State: protocol.BootHandedOver}
)

// startCommand runs init with a main command, which waits for Boot. The image has the script as its
// entrypoint, "" for none.
func (b *box) startCommand(entrypoint string, command []string, options ...string) *box {
	b.Helper()
	args := append(options, "--entrypoint-words=0", "--")
	if entrypoint != "" {
		b.write("entrypoint", "#!/bin/sh\n"+entrypoint, 0o755)
		args = append(options, "--entrypoint-words=1", "--", "/entrypoint")
	}
	return b.start(append(args, command...)...)
}

func sh(script string) []string { return []string{"sh", "-c", script} }

func TestCommand(t *testing.T) {
	t.Parallel()
	const prepares = `echo prepared; exec "$@"`
	for name, tt := range map[string]struct {
		entrypoint     string
		command        []string
		code, signal   int
		stdout, stderr string
	}{
		"alone":                     {"", sh("echo out; echo err >&2; exit 3"), 3, 0, "out\n", "err\n"},
		"alone, surroundings":       {"", sh("pwd; echo $MARK; cat; ls /proc/self/fd"), 0, 0, "/workspace\nimage\n0\n1\n2\n3\n", ""},
		"alone, killed":             {"", sh("kill -KILL $$"), 137, 9, "", ""},
		"entrypoint":                {prepares, append(sh(`echo "$0 $1"; echo err >&2; exit 4`), "a b", "c"), 4, 0, "prepared\na b c\n", "err\n"},
		"entrypoint, killed":        {prepares, sh("kill -TERM $$"), 143, 15, "prepared\n", ""},
		"entrypoint, as its child":  {`"$@"; echo after $?; exit 6`, sh("exit 5"), 6, 0, "after 5\n", ""},
		"entrypoint, own arguments": {`exec "$@" more`, sh(`echo "$0"`), 0, 0, "more\n", ""},
		"entrypoint, own user":      {`exec env -i /bin/busybox su -s /bin/sh agbox -c 'exec "$0" "$@"' "$@"`, []string{"/bin/id", "-u"}, 0, 0, "1000\n", ""},
		"entrypoint, not found":     {prepares, []string{"foo", "-x"}, 127, 0, "prepared\n", "agbox-init: exec: \"foo\" is not in PATH (/bin:/usr/bin)\n"},
		"entrypoint, no program":    {prepares, []string{"/bin"}, 126, 0, "prepared\n", "agbox-init: exec: \"/bin\" cannot be executed: it is a directory\n"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t).startCommand(tt.entrypoint, tt.command)
			if got := b.boot(); got != handedOver {
				t.Fatalf("%+v, stderr %q", got, b.file(protocol.CommandID, "stderr"))
			}
			o := b.wait(mainCommand)
			b.expect(o, tt.code, tt.stdout)
			if o.ID != protocol.CommandID || o.Signal != tt.signal || o.stderr != tt.stderr || o.Cancelled || o.ErrorCode != "" {
				t.Fatalf("%+v", o)
			}
			if o.Started.IsZero() || o.Ended.Before(o.Started) || o.MaxRSS <= 0 {
				t.Fatalf("times or usage: %+v", o.Result)
			}
			b.expect(b.run("true"), 0, "") // the sandbox stays
		})
	}
}

func TestCommandCannotRun(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		entrypoint string
		command    []string
		user       string
		code       string
		message    string
	}{
		"not found":           {"", []string{"foo"}, "", protocol.CodeCommandNotFound, `exec: "foo" is not in PATH (/bin:/usr/bin)`},
		"empty":               {"", []string{""}, "", protocol.CodeCommandNotFound, "the command is empty"},
		"not executable":      {"", []string{"/etc/passwd"}, "", protocol.CodeCommandNotExecutable, `"/etc/passwd" cannot be executed`},
		"user":                {"", []string{"true"}, "nobody", protocol.CodeUserUnknown, `user "nobody" is not in /etc/passwd`},
		"user, by entrypoint": {"true", []string{"true"}, "nobody", protocol.CodeUserUnknown, `user "nobody" is not in /etc/passwd`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t).startCommand(tt.entrypoint, tt.command, "--user="+tt.user)
			what, want := "command", link.BootStatus{State: protocol.BootExited, ExitCode: 126}
			if tt.entrypoint != "" {
				what = "entrypoint"
			}
			if tt.code == protocol.CodeCommandNotFound {
				want.ExitCode = 127
			}
			if got := b.boot(); got != want {
				t.Fatalf("%+v", got)
			}
			o := b.wait(mainCommand)
			if o.ExitCode != want.ExitCode || o.ErrorCode != tt.code || o.Started.IsZero() || !strings.Contains(o.ErrorMessage, tt.message) {
				t.Fatalf("%+v", o)
			}
			if o.stderr != "agbox-init: "+what+": "+o.ErrorMessage+"\n" {
				t.Fatalf("%q", o.stderr)
			}
		})
	}
}

// An entrypoint that ends before it hands over has not run the command.
func TestCommandNotReached(t *testing.T) {
	t.Parallel()
	b := newBox(t).startCommand("exit 4", []string{"touch", "/tmp/ran"})
	if got := b.boot(); got != (link.BootStatus{State: protocol.BootExited, ExitCode: 4}) {
		t.Fatalf("%+v", got)
	}
	if o := b.wait(mainCommand); o.ExitCode != 4 || o.Cancelled {
		t.Fatalf("%+v", o)
	}
	b.expect(b.sh("test -e /tmp/ran"), 1, "")
}

// Where there is no command, or not yet, an Exec of its id starts nothing.
func TestCommandUnknown(t *testing.T) {
	t.Parallel()
	b := newBox(t).startCommand("", sh("echo ran >> /tmp/ran"))
	unknown := func() {
		t.Helper()
		s := mainCommand
		s.Argv = []string{"touch", "/tmp/ran"}
		r, err := b.link.Exec(b.context(), s)
		b.check(err)
		if r.ID != s.ID || r.ErrorCode != protocol.CodeStartFailed || r.ExitCode != 126 || !strings.Contains(r.ErrorMessage, "no main command") {
			t.Fatalf("%+v", r)
		}
		b.link.Ack(s.ID)
		b.expect(b.sh("test -e /tmp/ran"), 1, "")
	}
	unknown()
	b.boot()
	b.expect(b.wait(mainCommand), 0, "")
	b.expect(b.sh("cat /tmp/ran"), 0, "ran\n")
	b = newBox(t).start()
	b.boot()
	unknown()
}

// A Boot without the record's descriptor does not use up the one there is in a life of init.
func TestCommandWithoutRecord(t *testing.T) {
	t.Parallel()
	b := newBox(t).startCommand("", sh("exit 3"))
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.link.Boot(over, nil, os.Stdout, os.Stderr, nil); err != context.Canceled {
		t.Fatal(err)
	}
	if got := b.boot(); got != handedOver {
		t.Fatalf("%+v", got)
	}
	b.expect(b.wait(mainCommand), 3, "")
}

func TestUserOption(t *testing.T) {
	t.Parallel()
	const whoami = "id -u; id -g; echo $HOME $USER"
	agbox, other, image := "1000\n1000\n/home/agbox agbox\n", "1001\n20\n/home/other other\n", "4242\n4243\n/ 4242\n"
	for name, tt := range map[string]struct {
		options          []string
		primary, execute string
	}{
		"wins":          {[]string{"--user=other:20", "--image-user=4242:4243"}, other, other},
		"number":        {[]string{"--user=4242:4243", "--image-user=other"}, image, image},
		"is root":       {[]string{"--user=root", "--image-user=other"}, "0\n0\n/root root\n", "0\n0\n/root root\n"},
		"not given":     {[]string{"--user=", "--image-user=4242:4243"}, image, agbox},
		"nobody is":     {nil, "0\n0\n/root root\n", agbox},
		"without group": {[]string{"--user=agbox"}, agbox, agbox},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t).startCommand("", sh(whoami), tt.options...)
			b.boot()
			b.expect(b.wait(mainCommand), 0, tt.primary)
			b.expect(b.sh(whoami+"; touch x"), 0, tt.execute) // the working directory is this user's
			b.expect(b.wait(b.spec(sh(whoami), func(s *link.ExecSpec) { s.User = "agbox" })), 0, agbox)

			b = newBox(t).startCommand("id -u >&2; exec \"$@\"", sh(whoami), tt.options...)
			b.boot()
			o := b.wait(mainCommand)
			b.expect(o, 0, tt.primary)
			if uid, _, _ := strings.Cut(tt.primary, "\n"); o.stderr != uid+"\n" {
				t.Fatalf("entrypoint: %q", o.stderr)
			}
		})
	}
}

// What cannot be given is refused, and not run as somebody else.
func TestUserOptionUnprivileged(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.UID = 1000
	b.startCommand("", []string{"true"}, "--user=other", "--workdir=/tmp")
	b.boot()
	for _, o := range []outcome{b.wait(mainCommand), b.run("true")} {
		if o.ErrorCode != protocol.CodeUserUnknown || !strings.Contains(o.ErrorMessage, "without the right to switch") {
			t.Fatalf("%+v", o)
		}
	}
}

// Whoever asks for the command gets its one result, also after a reconnect and after Ack.
func TestCommandAttach(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	pids := make(chan int, 1)
	s := mainCommand
	s.OnStarted = func(pid int) { pids <- pid }
	bg := b.startCommand(`exec "$@"`, sh("busybox mkfifo -m 666 /tmp/gate; echo ready; echo $$; cat /tmp/gate; exit 9")).beginSpec(s)
	if pid, want := strconv.Itoa(<-pids), bg.line(); pid != want {
		t.Fatal(pid, want)
	}
	b.relink()
	bg.again()
	<-pids
	b.expect(b.sh("echo > /tmp/gate"), 0, "")
	first := bg.wait()
	for range 2 {
		b.link.Ack(s.ID)
		bg.attach()
		if again := bg.wait(); again != first || again.ExitCode != 9 {
			t.Fatalf("%+v, then %+v", first, again)
		}
	}
}

// Every new daemon is told the result, until one says Ack.
func TestCommandResultRepeated(t *testing.T) {
	t.Parallel()
	b := newBox(t).startCommand("", sh("exit 9"))
	b.boot()
	first, err := b.link.Exec(b.context(), mainCommand)
	b.check(err)
	b.check(b.link.Close())
	for range 2 {
		if told := b.greeting()[protocol.CommandID]; told != first || told.ExitCode != 9 {
			t.Fatalf("%+v, then %+v", first, told)
		}
	}
	b.listen()
	b.link.Ack(protocol.CommandID)
	b.check(b.link.Connected(b.context()))
	b.expect(b.run("true"), 0, "") // init has read the Ack before this
	b.check(b.link.Close())
	if told, again := b.greeting()[protocol.CommandID]; again {
		t.Fatalf("%+v", told)
	}
}

// greeting plays a new daemon: it returns the results that init tells by itself.
func (b *box) greeting() map[string]protocol.Result {
	b.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.address(), Net: "unix"})
	b.check(err)
	defer listener.Close()
	b.check(listener.SetDeadline(time.Now().Add(2 * time.Minute)))
	conn, err := listener.Accept()
	b.check(err)
	defer conn.Close()
	b.check(conn.SetDeadline(time.Now().Add(2 * time.Minute)))
	var decoder protocol.Decoder
	results, all := map[string]protocol.Result{}, -1
	for buf := make([]byte, 4096); len(results) != all; {
		m, _, err := decoder.Next()
		b.check(err)
		switch m := m.(type) {
		case nil:
			n, err := conn.Read(buf)
			b.check(err)
			decoder.Feed(buf[:n], nil)
		case *protocol.Hello:
			all = len(m.Execs) // nothing runs
		case *protocol.Result:
			results[m.ID] = *m
		}
	}
	return results
}

// beginCommand boots and returns once the main command has written the line "ready".
func (b *box) beginCommand(entrypoint, script string, options ...string) *background {
	b.Helper()
	return b.startCommand(entrypoint, sh(script), options...).beginSpec(mainCommand)
}

func TestCommandCancel(t *testing.T) {
	t.Parallel()
	for name, entrypoint := range map[string]string{
		"alone": "", "entrypoint": `setsid sleep 300 & exec "$@"`, "entrypoint, as its child": `"$@" & wait`,
	} {
		t.Run(name, func(t *testing.T) {
			cancelled(newBox(t).beginCommand(entrypoint, "setsid sleep 300 & echo ready; sleep 300"), time.Minute, 15)
		})
	}
}

func TestCommandCancelDeaf(t *testing.T) {
	t.Parallel()
	cancelled(newBox(t).beginCommand("", "trap '' TERM; echo ready; while :; do sleep 300; done"), 50*time.Millisecond, 9)
}

// Before it has handed over, cancel ends the entrypoint.
func TestCommandCancelledEarly(t *testing.T) {
	t.Parallel()
	b := newBox(t).startCommand("touch /tmp/here; sleep 300; exec \"$@\"", []string{"true"})
	status := make(chan link.BootStatus)
	go func() { status <- b.boot() }()
	b.expect(b.sh("until test -e /tmp/here; do sleep 0.01; done"), 0, "")
	b.check(b.link.Cancel(context.Background(), protocol.CommandID, time.Minute))
	if got := <-status; got.State != protocol.BootExited || got.Signal != 15 {
		t.Fatalf("%+v", got)
	}
	if o := b.wait(mainCommand); o.Signal != 15 || !o.Cancelled {
		t.Fatalf("%+v", o)
	}
}

func TestCommandStop(t *testing.T) {
	t.Parallel()
	for name, entrypoint := range map[string]string{"alone": "", "entrypoint": `exec "$@"`} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			bg := b.beginCommand(entrypoint, "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done", "--stop-grace=10m")
			b.term()
			if r := bg.wait(); r.ExitCode != 7 || !r.Cancelled {
				t.Fatalf("%+v", r)
			}
			if line := bg.line(); line != "bye" {
				t.Fatal(line)
			}
			if code := b.ended(); code != 0 {
				t.Fatal(code)
			}
			if r, ok := protocol.ParseRecord([]byte(b.file(bg.ID, "record"))); !ok || r != bg.result {
				t.Fatalf("record: %+v, %v", r, ok)
			}
		})
	}
}

// What the command leaves behind stays, as with any exec.
func TestCommandLeavesChildren(t *testing.T) {
	t.Parallel()
	b := newBox(t).startCommand("", sh("setsid sleep 300 >/dev/null 2>&1 & exit 2"))
	b.boot()
	b.expect(b.wait(mainCommand), 2, "")
	b.expect(b.run("true"), 0, "")
	if left := b.processes(); len(left) != 1 {
		t.Fatalf("%q", left)
	}
}

// An entrypoint that is a program takes the command as Docker would give it.
func TestCommandOfProgram(t *testing.T) {
	t.Parallel()
	b := newBox(t).start("--entrypoint-words=2", "--", "/bin/busybox", "echo", "ran", "it")
	if got := b.boot(); got != handedOver {
		t.Fatalf("%+v", got)
	}
	b.expect(b.wait(mainCommand), 0, "ran it\n")
}
