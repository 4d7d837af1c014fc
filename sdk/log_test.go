package sdk_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agbox-dev/agbox/sdk"
)

func TestReadLog(t *testing.T) {
	c, d, _ := start(t)
	exec := begin(t, c, sh("printf 0123456789; printf oops >&2"))
	if _, err := c.WaitExec(t.Context(), exec); err != nil {
		t.Fatal(err)
	}
	for _, read := range []struct {
		want string
		opts []sdk.LogOption
	}{
		{"0123456789", nil},
		{"0123456789", []sdk.LogOption{sdk.WithFollow()}},
		{"89", []sdk.LogOption{sdk.WithOffset(8)}},
		{"", []sdk.LogOption{sdk.WithOffset(11)}},
		{"789", []sdk.LogOption{sdk.WithTail(3)}},
		{"", []sdk.LogOption{sdk.WithTail(0), sdk.WithFollow()}},
		{"789", []sdk.LogOption{sdk.WithOffset(1), sdk.WithTail(3), sdk.WithFollow()}},
		{"123456789", []sdk.LogOption{sdk.WithTail(3), sdk.WithOffset(1)}},
		{"ps", []sdk.LogOption{sdk.WithStderr(), sdk.WithTail(2)}},
	} {
		log := c.ReadLog(t.Context(), exec.ID, read.opts...)
		got, err := io.ReadAll(log)
		if err != nil || string(got) != read.want {
			t.Errorf("got %q, %v, want %q", got, err, read.want)
		}
		if n, err := log.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("after the end: %d, %v", n, err)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
	log := c.ReadLog(t.Context(), "never-was", sdk.WithFollow())
	defer log.Close()
	if _, err := io.ReadAll(log); !errors.Is(err, sdk.ErrExecNotFound) {
		t.Errorf("of no exec: %v", err)
	}
	d.Shutdown()
	log = c.ReadLog(t.Context(), exec.ID, sdk.WithFollow())
	defer log.Close()
	if _, err := io.ReadAll(log); !errors.Is(err, sdk.ErrUnavailable) {
		t.Errorf("of no daemon: %v", err)
	}
}

// barrier is a pipe from which a command reads a line for each call of open. The test has it open for both directions,
// so that no end waits for the other.
func barrier(t *testing.T) (path string, open func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pipe.Close() })
	return path, func() {
		t.Helper()
		if _, err := pipe.WriteString("go\n"); err != nil {
			t.Fatal(err)
		}
	}
}

// What is written while the daemon is away is not missed, nor is anything read twice.
func TestReadLogOverRestarts(t *testing.T) {
	broken := 0
	c, d, socket := start(t, sdk.WithBrokenStream(func(error) { broken++ }))
	gate, open := barrier(t)
	exec := begin(t, c, sh(fmt.Sprintf(`seq 1000; for i in 1 2; do read x <%s; seq 1000; done`, gate)))
	var part strings.Builder
	for i := range 1000 {
		fmt.Fprintln(&part, i+1)
	}
	log := c.ReadLog(t.Context(), exec.ID, sdk.WithFollow())
	defer log.Close()
	read := func() {
		t.Helper()
		got := make([]byte, part.Len())
		if _, err := io.ReadFull(log, got); err != nil || string(got) != part.String() {
			t.Fatalf("got %d bytes, %v", len(got), err)
		}
	}
	read()
	for range 2 {
		d.Shutdown()
		open()
		if err := d.Serve(socket); err != nil {
			t.Fatal(err)
		}
		read()
	}
	if rest, err := io.ReadAll(log); err != nil || len(rest) > 0 || broken < 2 {
		t.Errorf("at the end: %q, %v, away %d times", rest, err, broken)
	}
}

// A daemon that is away for several attempts.
func TestReadLogWhileAway(t *testing.T) {
	away := make(chan struct{}, 100)
	c, d, socket := start(t, sdk.WithBrokenStream(func(error) { away <- struct{}{} }))
	gate, open := barrier(t)
	exec := begin(t, c, sh(fmt.Sprintf(`echo one; read x <%s; echo two`, gate)))
	log := c.ReadLog(t.Context(), exec.ID, sdk.WithFollow())
	defer log.Close()
	if _, err := io.ReadFull(log, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	d.Shutdown()
	read := make(chan string, 1)
	go func() {
		rest, err := io.ReadAll(log)
		read <- fmt.Sprint(string(rest), err)
	}()
	for range 3 {
		<-away
	}
	if err := d.Serve(socket); err != nil {
		t.Fatal(err)
	}
	open()
	if got := <-read; got != "two\n<nil>" {
		t.Errorf("got %q", got)
	}
}

// A break without follow is told: what was there then and what is there now are two things.
func TestReadLogWithoutFollowBreaks(t *testing.T) {
	c, d, _ := start(t)
	exec := begin(t, c, sh("head -c 20000000 /dev/zero"))
	if _, err := c.WaitExec(t.Context(), exec); err != nil {
		t.Fatal(err)
	}
	log := c.ReadLog(t.Context(), exec.ID)
	defer log.Close()
	if _, err := io.ReadFull(log, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	d.Shutdown()
	if _, err := io.Copy(io.Discard, log); !errors.Is(err, sdk.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// Close and the context's end let a Read that waits return.
func TestReadLogCloses(t *testing.T) {
	c, _, _ := start(t)
	exec := begin(t, c, sh("echo up; exec sleep 300"))
	log := c.ReadLog(t.Context(), exec.ID, sdk.WithFollow())
	if _, err := io.ReadFull(log, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := log.Read(make([]byte, 1))
		read <- err
	}()
	for range 2 {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-read; !errors.Is(err, fs.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
