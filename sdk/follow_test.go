package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/sdk"
)

// script is a writer that is told what to do when its text first holds a word.
type script struct {
	bytes.Buffer
	word string
	do   func()
}

func (s *script) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	if s.do != nil && strings.Contains(s.String(), s.word) {
		s.do()
		s.do = nil
	}
	return n, err
}

func begin(t *testing.T, c *sdk.Client, command []string) sdk.Exec {
	t.Helper()
	exec, err := c.CreateExec(t.Context(), ready(t, c).ID, command)
	if err != nil {
		t.Fatal(err)
	}
	return exec
}

// The command goes on only after each part of its output has arrived.
func TestFollowWhileTheFileGrows(t *testing.T) {
	c, d, socket := start(t)
	gate, open := barrier(t)
	exec := begin(t, c, sh(fmt.Sprintf(`echo one; read x <%s; echo two; echo err >&2; exit 3`, gate)))
	out := &script{word: "one", do: func() {
		d.Shutdown() // the daemon's restart does not disturb
		if err := d.Serve(socket); err != nil {
			t.Error(err)
		}
		open()
	}}
	var errs bytes.Buffer
	last, err := c.FollowLogs(t.Context(), exec, out, &errs)
	if err != nil || last.ExitCode != 3 || out.String() != "one\ntwo\n" || errs.String() != "err\n" {
		t.Fatalf("got %+v, %v, %q, %q", last, err, out, errs.String())
	}
}

func TestFollowIsComplete(t *testing.T) {
	c, _, _ := start(t)
	exec := begin(t, c, sh(`head -c 20000000 /dev/zero; head -c 1000000 /dev/zero >&2`))
	var out, errs counter
	if _, err := c.FollowLogs(t.Context(), exec, &out, &errs); err != nil || out != 20_000_000 || errs != 1_000_000 {
		t.Fatalf("got %d, %d, %v", out, errs, err)
	}
	// A second time, long after its end.
	out, errs = 0, 0
	if _, err := c.FollowLogs(t.Context(), exec, &out, &errs); err != nil || out != 20_000_000 || errs != 1_000_000 {
		t.Fatalf("again: %d, %d, %v", out, errs, err)
	}
}

type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func TestFollowEnds(t *testing.T) {
	c, _, _ := start(t)
	t.Run("not found", func(t *testing.T) {
		_, err := c.FollowLogs(t.Context(), begin(t, c, []string{"/no/such/command"}), io.Discard, io.Discard)
		if e := (*sdk.ExecFailedError)(nil); !errors.As(err, &e) || e.Code != "EXEC_COMMAND_NOT_FOUND" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		exec := begin(t, c, sh("echo up; exec sleep 300"))
		out := &script{word: "up", do: func() {
			if err := c.CancelExec(t.Context(), exec.ID, sdk.WithWait(false)); err != nil {
				t.Error(err)
			}
		}}
		last, err := c.FollowLogs(t.Context(), exec, out, io.Discard)
		if e := (*sdk.ExecFailedError)(nil); !errors.As(err, &e) || e.State != sdk.ExecCancelled || last.State != sdk.ExecCancelled {
			t.Errorf("got %+v, %v", last, err)
		}
	})
	t.Run("context", func(t *testing.T) {
		exec := begin(t, c, sh("echo up; exec sleep 300"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		last, err := c.FollowLogs(ctx, exec, &script{word: "up", do: cancel}, io.Discard)
		if !errors.Is(err, context.Canceled) || last.State != sdk.ExecRunning {
			t.Errorf("got %+v, %v", last, err)
		}
	})
	t.Run("writer", func(t *testing.T) {
		exec := begin(t, c, sh("echo up; exec sleep 300"))
		r, w := io.Pipe()
		r.Close()
		if _, err := c.FollowLogs(t.Context(), exec, w, io.Discard); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("got %v", err)
		}
	})
}
