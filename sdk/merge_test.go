package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/sdk"
)

// Chunks tell their stream, their place and, of both, their time.
func TestLogChunks(t *testing.T) {
	c, d, _ := start(t)
	exec := begin(t, c, sh("printf 0123456789; printf oops >&2"))
	if _, err := c.WaitExec(t.Context(), exec); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]struct {
		opts   []sdk.LogOption
		stdout string // with its offset
		stderr string
	}{
		"stdout":       {nil, "0:0123456789", ""},
		"stdout, part": {[]sdk.LogOption{sdk.WithTail(3), sdk.WithFollow()}, "7:789", ""},
		"stderr":       {[]sdk.LogOption{sdk.WithStderr(), sdk.WithOffset(1)}, "", "1:ops"},
		"both":         {[]sdk.LogOption{sdk.WithBoth()}, "0:0123456789", "0:oops"},
		"both, follow": {[]sdk.LogOption{sdk.WithBoth(), sdk.WithFollow(), sdk.WithOffset(5)}, "0:0123456789", "0:oops"},
	} {
		var stdout, stderr string
		for chunk, err := range c.LogChunks(t.Context(), exec.ID, read.opts...) {
			if err != nil {
				t.Fatal(err)
			}
			to := &stdout
			if chunk.Stderr {
				to = &stderr
			}
			*to += fmt.Sprintf("%d:%s", chunk.Offset, chunk.Data)
			if timed := strings.HasPrefix(name, "both"); timed == chunk.WrittenAt.IsZero() {
				t.Errorf("%s: written at %v", name, chunk.WrittenAt)
			}
		}
		if stdout != read.stdout || stderr != read.stderr {
			t.Errorf("%s: %q and %q", name, stdout, stderr)
		}
	}
	if text, err := io.ReadAll(c.ReadLog(t.Context(), exec.ID, sdk.WithBoth())); err != nil || len(text) != 14 || !strings.Contains(string(text), "0123456789") {
		t.Errorf("as a text: %q, %v", text, err)
	}
	for chunk := range c.LogChunks(t.Context(), exec.ID) {
		if len(chunk.Data) == 10 {
			break // which ends the stream
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	for name, tt := range map[string]struct {
		ctx  context.Context
		id   string
		want error
	}{"no exec": {t.Context(), "never-was", sdk.ErrExecNotFound}, "cancelled": {ctx, exec.ID, cause}} {
		errs := 0
		for _, err := range c.LogChunks(tt.ctx, tt.id, sdk.WithBoth(), sdk.WithFollow()) {
			if errs++; !errors.Is(err, tt.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if errs != 1 {
			t.Errorf("%s: %d errors", name, errs)
		}
	}
	d.Shutdown()
	for _, err := range c.LogChunks(t.Context(), exec.ID) {
		if !errors.Is(err, sdk.ErrUnavailable) {
			t.Errorf("of no daemon: %v", err)
		}
	}
}

// The daemon sends both from the beginning after each break; what was told is not told again, not even a part of a chunk.
func TestLogChunksOverRestarts(t *testing.T) {
	broken := 0
	c, d, socket := start(t, sdk.WithBrokenStream(func(error) { broken++ }))
	gate, open := barrier(t)
	exec := begin(t, c, sh(fmt.Sprintf("exec 3<%s; for i in 1 2 3; do printf %%100s $i; printf %%50s $i >&2; read x <&3; done", gate)))
	var stdout, stderr uint64
	rounds := uint64(1)
	for chunk, err := range c.LogChunks(t.Context(), exec.ID, sdk.WithBoth(), sdk.WithFollow()) {
		if err != nil {
			t.Fatal(err)
		}
		next := &stdout
		if chunk.Stderr {
			next = &stderr
		}
		if chunk.Offset != *next || len(chunk.Data) == 0 {
			t.Fatalf("%d bytes at %d, where %d is next", len(chunk.Data), chunk.Offset, *next)
		}
		*next += uint64(len(chunk.Data))
		if stdout == 100*rounds && stderr == 50*rounds {
			d.Shutdown()
			rounds++
			open()
			if err := d.Serve(socket); err != nil {
				t.Fatal(err)
			}
		}
	}
	if rounds != 4 || broken < 3 {
		t.Errorf("%d rounds, away %d times", rounds, broken)
	}
}
