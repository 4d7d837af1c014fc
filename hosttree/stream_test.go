package hosttree_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/hosttree"
)

// hooked is a writer with something to do before its first write.
type hooked struct {
	io.Writer
	first func() error
	// sizes are those of the writes that reached Writer.
	sizes []int
}

func (w *hooked) Write(p []byte) (int, error) {
	if w.first != nil {
		if err := w.first(); err != nil {
			return 0, err
		}
		w.first = nil
	}
	w.sizes = append(w.sizes, len(p))
	return w.Writer.Write(p)
}

// large is more than Stream holds back: before it has read as much, it writes.
const large = 8 * hosttree.BufferSize

// TestSwappedSinceCheck: what was fine when it was checked and is not when it is streamed is refused, and nothing of
// where it leads is written.
func TestSwappedSinceCheck(t *testing.T) {
	tests := []struct {
		name string
		kind error
		swap string
		with func(h *host)
	}{
		{"file by a link", hosttree.ErrLinkEscapes, "proj/sub/f", func(h *host) { h.link("proj/sub/f", h.path("secret/f")) }},
		{"directory by a link", hosttree.ErrLinkEscapes, "proj/sub", func(h *host) { h.link("proj/sub", "../secret") }},
		{"source by a link", hosttree.ErrSourceSymlink, "proj", func(h *host) { h.link("proj", "secret") }},
		{"source's directory by a link", hosttree.ErrSourceSymlink, "", func(h *host) { h.must(os.Symlink(h.root+"-was/secret", h.root)) }},
		{"file by a pipe", hosttree.ErrEntryKind, "proj/sub/f", func(h *host) { h.fifo("proj/sub/f") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			h.file("proj/sub/f")
			for _, file := range []string{"f", "sub/f", "proj/sub/f"} {
				h.file("secret/" + file)
			}
			h.must(hosttree.Check(t.Context(), h.path("proj"), nil, nil))
			h.must(os.Rename(h.path(tt.swap), h.root+"-was"))
			t.Cleanup(func() { os.RemoveAll(h.root + "-was") })
			tt.with(h)
			var out bytes.Buffer
			wantError(t, hosttree.Stream(t.Context(), &out, h.path("proj"), "/to", nil), tt.kind, "")
			if bytes.Contains(out.Bytes(), []byte("secret")) {
				t.Error("what the link leads to was copied")
			}
		})
	}
}

// TestSwappedWhileStreaming: once Stream has the source, it goes on in that and in nothing that takes its name.
func TestSwappedWhileStreaming(t *testing.T) {
	h := newHost(t)
	h.sparse("a/proj/large", large)
	h.file("a/proj/z/f")
	h.file("secret/proj/z/f")
	var out bytes.Buffer
	w := &hooked{Writer: &out, first: func() error {
		return errors.Join(os.Rename(h.path("a"), h.path("b")), os.Symlink("secret", h.path("a")))
	}}
	h.must(hosttree.Stream(t.Context(), w, h.path("a/proj"), "/to", nil))
	entries := untar(t, &out)
	last := entries[len(entries)-1]
	if last.Name != "to/z/f" || string(last.content) != "a/proj/z/f" {
		t.Errorf("the last entry is %s with %q", last.Name, last.content)
	}
}

// TestWrittenMeanwhile: a file has the size of its opening, whatever happens to it, and what follows is not disturbed.
func TestWrittenMeanwhile(t *testing.T) {
	modified := time.Unix(1e9, 0)
	resize := func(size int64) func(string) error {
		return func(path string) error {
			return errors.Join(os.Truncate(path, size), os.Chtimes(path, time.Time{}, modified))
		}
	}
	tests := map[string]struct {
		change func(path string) error
		zeros  int // at least
	}{
		"grown":   {resize(2 * large), 0},
		"shrunk":  {resize(large/2 + 1), large/2 - 1},
		"emptied": {resize(0), large / 2},
		"overwritten": {func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("x")
			return errors.Join(err, f.Close())
		}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			path := h.file("proj/large")
			h.must(os.WriteFile(path, bytes.Repeat([]byte("a"), large), 0o644))
			h.must(os.Chtimes(path, time.Time{}, modified))
			h.file("proj/z")
			var out bytes.Buffer
			w := &hooked{Writer: &out, first: func() error { return tt.change(path) }}
			wantError(t, hosttree.Stream(t.Context(), w, h.path("proj"), "/to", nil), hosttree.ErrChanged, path)
			entries := untar(t, &out)
			if len(entries) != 4 || len(entries[1].content) != large || string(entries[3].content) != "proj/z" {
				t.Fatalf("%d entries, %d bytes", len(entries), len(entries[1].content))
			}
			zeros := bytes.TrimLeft(entries[1].content, "a")
			if other := bytes.Trim(zeros, "\x00"); len(other) > 0 || len(zeros) < tt.zeros || tt.zeros == 0 && len(zeros) > 0 {
				t.Errorf("ends in %d bytes that it did not hold, want %d zeros; not zero: %.20q", len(zeros), tt.zeros, other)
			}
		})
	}
}

// TestHeaders: names, links and times that the oldest format of tar has no room for.
func TestHeaders(t *testing.T) {
	h := newHost(t)
	long := strings.Repeat("long/", 60) + strings.Repeat("n", 200)
	for _, name := range []string{"\xff\xfe", "ünïcode 日本", "line\nbreak", ".wh.white", long} {
		h.file("proj/" + name)
	}
	h.link("proj/to-long", long)
	h.must(os.Link(h.path("proj/"+long), h.path("proj/z-hard")))
	modified := time.Unix(1e9, 123456789)
	h.must(os.Chtimes(h.path("proj/main.go"), time.Time{}, modified))
	entries, err := streamed(t, h.path("proj"))
	h.must(err)
	byName := map[string]entry{}
	for _, e := range entries {
		byName[strings.TrimPrefix(e.Name, "to/")] = e
		if e.Uname != "" || e.Gname != "" || !e.AccessTime.IsZero() {
			t.Errorf("%s carries more than it should: %+v", e.Name, e.Header)
		}
	}
	for _, name := range []string{"\xff\xfe", "ünïcode 日本", "line\nbreak", ".wh.white", long} {
		if got := string(byName[name].content); got != "proj/"+name {
			t.Errorf("%q holds %q", name, got)
		}
	}
	if e := byName["to-long"]; e.Typeflag != tar.TypeSymlink || e.Linkname != long {
		t.Errorf("the long link says %q", e.Linkname)
	}
	if e := byName["z-hard"]; e.Typeflag != tar.TypeLink || e.Linkname != "to/"+long {
		t.Errorf("the hard link is %c to %q", e.Typeflag, e.Linkname)
	}
	if e := byName["main.go"]; !e.ModTime.Equal(modified) {
		t.Errorf("modified at %v", e.ModTime)
	}
}

// TestMemory: what a large file takes is a few buffers.
func TestMemory(t *testing.T) {
	h := newHost(t)
	const size, limit = 300 << 20, 1 << 20
	h.sparse("proj/large", size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	written := &counter{}
	h.must(hosttree.Stream(t.Context(), written, h.path("proj"), "/to", nil))
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > limit || written.bytes < size {
		t.Errorf("%d bytes were allocated for %d that were written", took, written.bytes)
	}
}

type counter struct{ bytes int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return len(p), nil
}

// TestEnds: the end of the context and the writer's error end a stream within what it had in hand.
func TestEnds(t *testing.T) {
	const size = 300 << 20
	stop := errors.New("stop")
	t.Run("context in a file", func(t *testing.T) {
		h := newHost(t)
		h.sparse("proj/large", size)
		ctx, cancel := context.WithCancelCause(t.Context())
		written := &counter{}
		w := &hooked{Writer: written, first: func() error { cancel(stop); return nil }}
		if err := hosttree.Stream(ctx, w, h.path("proj"), "/to", nil); err != stop {
			t.Errorf("error %v", err)
		}
		if written.bytes > 4*hosttree.BufferSize {
			t.Errorf("%d bytes were written", written.bytes)
		}
	})
	t.Run("context between files", func(t *testing.T) {
		h := newHost(t)
		for i := range 300 {
			h.file(fmt.Sprintf("proj/%d", i))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		written := &counter{}
		w := &hooked{Writer: written, first: func() error { cancel(stop); return nil }}
		if err := hosttree.Stream(ctx, w, h.path("proj"), "/to", nil); err != stop {
			t.Errorf("error %v", err)
		}
		if written.bytes > 2*hosttree.BufferSize {
			t.Errorf("%d bytes were written", written.bytes)
		}
	})
	t.Run("context before", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(stop)
		if err := hosttree.Stream(ctx, io.Discard, newHost(t).path("proj"), "/to", nil); err != stop {
			t.Errorf("error %v", err)
		}
	})
	for name, sizes := range map[string]int64{"writer in a file": size, "writer at the end": 1} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.sparse("proj/large", sizes)
			w := &hooked{Writer: io.Discard, first: func() error { return stop }}
			if err := hosttree.Stream(t.Context(), w, h.path("proj"), "/to", nil); !errors.Is(err, stop) {
				t.Errorf("error %v", err)
			}
			if len(w.sizes) != 0 {
				t.Errorf("after its error %v bytes more were written", w.sizes)
			}
		})
	}
}

// TestCutOff: after an error the tar has no end, so that nobody who looks for it takes it for whole.
func TestCutOff(t *testing.T) {
	h := newHost(t)
	h.file("proj/a")
	h.fifo("proj/z")
	var out bytes.Buffer
	wantError(t, hosttree.Stream(t.Context(), &out, h.path("proj"), "/to", nil), hosttree.ErrEntryKind, "/proj/z")
	if end := make([]byte, 1024); bytes.HasSuffix(out.Bytes(), end) {
		t.Error("the tar of a stream that failed has an end")
	}
}

func BenchmarkStream(b *testing.B) {
	trees := []struct {
		name  string
		files int
		size  int64
	}{{"one file of 256 MiB", 1, 256 << 20}, {"4096 files of 16 KiB", 4096, 16 << 10}, {"4096 files of 1 KiB", 4096, 1 << 10}}
	for _, tree := range trees {
		b.Run(tree.name, func(b *testing.B) {
			h := newHost(b)
			content := slices.Repeat([]byte("0123456789abcdef"), int(tree.size/16))
			for i := range tree.files {
				dir := h.dir(fmt.Sprintf("proj/%d", i/64))
				h.must(os.WriteFile(fmt.Sprintf("%s/%d", dir, i), content, 0o644))
			}
			b.SetBytes(int64(tree.files) * tree.size)
			b.ReportAllocs()
			for b.Loop() {
				h.must(hosttree.Stream(b.Context(), io.Discard, h.path("proj"), "/to", []string{".git", "node_modules", "*.pyc"}))
			}
		})
	}
}
