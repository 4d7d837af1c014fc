package pid1_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// withInput gives the exec an input in the daemon's way: a FIFO, both ends of it for init.
func (b *box) withInput(s *link.ExecSpec) {
	b.Helper()
	path := filepath.Join(b.logs, s.ID+".stdin")
	b.check(syscall.Mkfifo(path, 0o666))
	b.check(os.Chmod(path, 0o666))
	read, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	b.check(err)
	b.check(syscall.SetNonblock(read, false))
	s.Stdin[0], s.Stdin[1] = os.NewFile(uintptr(read), path), b.client(s.ID)
	s.OnStarted = func(int) {
		s.Stdin[0].Close()
		s.Stdin[1].Close()
	}
}

// client opens the input of an exec as one more client.
func (b *box) client(id string) *os.File {
	b.Helper()
	f, err := os.OpenFile(filepath.Join(b.logs, id+".stdin"), os.O_WRONLY|syscall.O_NONBLOCK, 0)
	b.check(err)
	b.check(f.SetWriteDeadline(time.Now().Add(30 * time.Second)))
	b.Cleanup(func() { f.Close() })
	return f
}

func (b *box) key(f *os.File, text string) {
	b.Helper()
	_, err := f.WriteString(text)
	b.check(err)
}

func (b *box) withTerminal(rows, columns uint16) func(*link.ExecSpec) {
	return func(s *link.ExecSpec) {
		b.withInput(s)
		s.Terminal = &protocol.Size{Rows: rows, Columns: columns}
	}
}

// Everything that clients write comes to the command, and nothing else ends its input but CloseStdin.
func TestStdin(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	bg := b.begin("echo ready; while read line; do echo got $line; done; echo end", b.withInput)
	for _, text := range []string{"one", "two"} { // each from a client of its own
		client := b.client(bg.ID)
		b.key(client, text+"\n")
		if line := bg.line(); line != "got "+text {
			t.Fatal(line)
		}
		b.check(client.Close())
	}
	b.relink()
	bg.Stdin = [2]*os.File{}
	bg.again()
	client := b.client(bg.ID)
	b.key(client, "three\n")
	b.check(client.Close())
	if line := bg.line(); line != "got three" {
		t.Fatal(line)
	}
	b.check(b.link.CloseStdin(bg.ID))
	if line := bg.line(); line != "end" {
		t.Fatal(line)
	}
	if r := bg.wait(); r.ExitCode != 0 {
		t.Fatalf("%+v", r)
	}
}

// What is written before the input is closed is read before its end, all of it.
func TestStdinAll(t *testing.T) {
	t.Parallel()
	const size = 16 << 20
	b := newBox(t).start()
	s := b.spec([]string{"cat"}, b.withInput)
	done := make(chan struct{})
	var r protocol.Result
	var err error
	client := b.client(s.ID)
	go func() {
		defer close(done)
		r, err = b.link.Exec(b.context(), s)
	}()
	want, got := sha256.New(), sha256.New()
	source := rand.NewChaCha8([32]byte{1})
	n, werr := io.Copy(io.MultiWriter(client, want), io.LimitReader(source, size))
	if n != size || werr != nil {
		t.Fatal(n, werr)
	}
	b.check(b.link.CloseStdin(s.ID))
	b.check(client.Close())
	<-done
	b.check(err)
	got.Write([]byte(b.file(s.ID, "stdout")))
	if r.ExitCode != 0 || r.StdoutBytes != size || !bytes.Equal(want.Sum(nil), got.Sum(nil)) {
		t.Fatalf("%+v", r)
	}
}

// An input that is closed while no daemon is connected, or before its command was started.
func TestStdinClosedUnconnected(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	bg := b.begin("echo ready; cat; echo end", b.withInput)
	early := b.spec([]string{"cat"}, b.withInput)
	b.check(b.link.CloseStdin(early.ID))
	b.expect(b.wait(early), 0, "")
	b.check(b.link.Close())
	b.listen()
	b.check(b.link.CloseStdin(bg.ID))
	if line := bg.line(); line != "end" {
		t.Fatal(line)
	}
}

// The end of the command is the end of its input, whoever else reads it.
func TestStdinEndsWithCommand(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	b.expect(b.sh("busybox mkfifo -m 666 /tmp/heard"), 0, "")
	s := b.spec([]string{"sh", "-c", "exec 3<&0; (cat <&3; echo over > /tmp/heard) & exit 3"}, b.withInput)
	if r, err := b.link.Exec(b.context(), s); err != nil || r.ExitCode != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	s.OnStarted(0) // which a short command may have spared
	b.expect(b.run("cat", "/tmp/heard"), 0, "over\n")
	client, err := os.OpenFile(filepath.Join(b.logs, s.ID+".stdin"), os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if !errors.Is(err, syscall.ENXIO) {
		t.Fatal(client, err)
	}
}

func TestStdinByName(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	for _, user := range []string{"root", "agbox", "4242"} {
		s := b.spec([]string{"sh", "-c", "read line < /dev/stdin; echo $line"}, b.withInput, func(s *link.ExecSpec) { s.User = user })
		b.key(b.client(s.ID), "hello\n")
		b.expect(b.wait(s), 0, "hello\n")
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	for name, tt := range map[string]struct {
		script, keys, want string
		edit               func(*link.ExecSpec)
	}{
		"all three":       {"test -t 0 -a -t 1 -a -t 2 && echo yes; echo no >&2", "", "yes\r\nno\r\n", nil},
		"size":            {"stty size", "", "24 80\r\n", nil},
		"type":            {"echo $TERM", "", "xterm-256color\r\n", nil},
		"type asked for":  {"echo $TERM", "", "dumb\r\n", func(s *link.ExecSpec) { s.Env = []string{"TERM=dumb"} }},
		"echo":            {"read x; echo $x", "typed\n", "typed\r\ntyped\r\n", nil},
		"name":            {"tty; ls -ln $(tty) | (read mode n user group rest; echo $user $group)", "", "/dev/pts/0\r\n1000 5\r\n", nil},
		"opened by name":  {"echo a > /dev/tty; echo b > $(tty); echo c > /dev/stderr", "", "a\r\nb\r\nc\r\n", nil},
		"end of file key": {"cat; echo over", "\x04", "over\r\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			b.in(t)
			s := b.spec([]string{"sh", "-c", tt.script}, b.withTerminal(24, 80))
			if tt.edit != nil {
				tt.edit(&s)
			}
			b.key(b.client(s.ID), tt.keys)
			o := b.wait(s)
			if got := strings.ReplaceAll(o.stdout, "^D\b\b", ""); o.ExitCode != 0 || got != tt.want || o.stderr != "" || o.StdoutBytes != uint64(len(o.stdout)) {
				t.Fatalf("%+v, %q, stderr %q; want %q", o.Result, o.stdout, o.stderr, tt.want)
			}
		})
	}
}

// What a command puts in the place of the device is not what later ones get; and where no terminal is left, that is said.
func TestTerminalDeviceReplaced(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.Terminals = 1
	b.start()
	root := func(s *link.ExecSpec) { s.User = "0" }
	b.expect(b.wait(b.spec(sh("rm /dev/ptmx; busybox mkfifo /dev/ptmx"), root)), 0, "")
	bg := b.beginTerminal("echo ready; exec sleep 300")
	o := b.wait(b.spec([]string{"true"}, b.withTerminal(24, 80)))
	if o.ErrorCode != protocol.CodeNoTerminal || o.ExitCode != 126 || !strings.Contains(o.ErrorMessage, "kernel.pty.max") {
		t.Fatalf("%+v", o.Result)
	}
	b.expect(b.run("true"), 0, "")
	cancelled(bg, time.Minute, 15)
}

// shown reads a line of a terminal.
func (bg *background) shown() string {
	bg.Helper()
	return strings.TrimSuffix(bg.line(), "\r")
}

// beginTerminal is begin in a terminal, where lines end in CR LF and input is not shown.
func (b *box) beginTerminal(script string) *background {
	b.Helper()
	return b.begin("stty -echo -onlcr; "+script, b.withTerminal(24, 80))
}

func TestTerminalResize(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	bg := b.beginTerminal(`trap "stty size" WINCH; echo ready; while :; do read x; done`)
	for _, size := range []protocol.Size{{Rows: 50, Columns: 132}, {Rows: 2, Columns: 300}} {
		b.check(b.link.Resize(b.context(), bg.ID, size))
		b.key(b.client(bg.ID), "\n") // the shell runs its trap once read returns
		want := map[uint16]string{50: "50 132", 2: "2 300"}[size.Rows]
		if line := bg.shown(); line != want {
			t.Fatalf("%q, want %q", line, want)
		}
	}
	plain := b.begin("echo ready; exec sleep 300")
	if err := b.link.Resize(b.context(), plain.ID, protocol.Size{Rows: 1, Columns: 1}); !errors.Is(err, link.ErrNoTerminal) {
		t.Error(err)
	}
	if err := b.link.Resize(b.context(), "none", protocol.Size{}); !errors.Is(err, link.ErrExecUnknown) {
		t.Error(err)
	}
	b.check(b.link.Cancel(b.context(), bg.ID, 0))
	bg.wait()
	if err := b.link.Resize(b.context(), bg.ID, protocol.Size{}); !errors.Is(err, link.ErrExecEnded) {
		t.Error(err)
	}
}

// The keys of a terminal: ^C interrupts, and what closes the input types the end of file, in the middle of a line too.
func TestTerminalKeys(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	bg := b.beginTerminal("echo ready; exec cat")
	b.key(b.client(bg.ID), "\x03")
	if r := bg.wait(); r.Signal != 2 {
		t.Fatalf("%+v", r)
	}
	for text, want := range map[string]string{"": "over", "whole\n": "whole", "part": "partover"} {
		bg = b.beginTerminal("echo ready; cat; echo over; sleep 300")
		client := b.client(bg.ID)
		b.key(client, text)
		b.check(client.Close())
		b.check(b.link.CloseStdin(bg.ID))
		if line := bg.shown(); line != want {
			t.Errorf("%q shows %q, want %q", text, line, want)
		}
		bg.cancel()
	}
	s := b.spec([]string{"cat"}, func(s *link.ExecSpec) { s.Terminal = &protocol.Size{Rows: 1, Columns: 1} })
	if o := b.wait(s); o.ExitCode != 0 { // closed before the start: no descriptors come
		t.Fatalf("%+v", o.Result)
	}
}

// Input through a terminal that the command takes slowly waits, and holds up nobody else; none of it is lost.
func TestTerminalFull(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	b := newBox(t).start()
	b.expect(b.sh("busybox mkfifo -m 666 /tmp/gate"), 0, "")
	bg := b.begin("stty raw -echo; echo ready; cat /tmp/gate; head -c 4194304 | busybox sha256sum", b.withTerminal(24, 80))
	want := sha256.New()
	client := b.client(bg.ID)
	wrote := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.MultiWriter(client, want), io.LimitReader(rand.NewChaCha8([32]byte{2}), size))
		wrote <- err
	}()
	for range 20 { // while the keys wait
		b.expect(b.sh("echo x"), 0, "x\n")
	}
	b.sh("echo > /tmp/gate")
	b.check(<-wrote)
	if line := bg.shown(); line != "" { // of the gate
		t.Fatal(line)
	}
	if line, _, _ := strings.Cut(bg.shown(), " "); line != hex.EncodeToString(want.Sum(nil)) {
		t.Fatal(line)
	}
}

// All that a command has shown before its end is in the file, also what a slow pump had left in the terminal.
func TestTerminalOutput(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	for range 5 {
		o := b.wait(b.spec([]string{"sh", "-c", "stty -onlcr; head -c 1000000 /bin/busybox | busybox od -An -v -tx1; sleep 300 & echo end"}, b.withTerminal(24, 80)))
		if o.ExitCode != 0 || len(o.stdout) != 3*1000000+1000000/16+4 || !strings.HasSuffix(o.stdout, "\nend\n") {
			t.Fatalf("%+v, %d bytes", o.Result, len(o.stdout))
		}
		o = b.wait(b.spec([]string{"sh", "-c", "stty raw; exec dd if=/bin/busybox bs=50000 count=1 2>/dev/null"}, b.withTerminal(24, 80)))
		if o.ExitCode != 0 || len(o.stdout) != 50000 || o.StdoutBytes != 50000 {
			t.Fatalf("%+v, %d bytes", o.Result, len(o.stdout))
		}
	}
}
