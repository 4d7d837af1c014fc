package hosttree_test

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/hosttree"
)

// TestEntries: what a copy takes and in which order, from Check and from Stream.
func TestEntries(t *testing.T) {
	h := newHost(t)
	for _, file := range []string{"a.go", "a/x", "a-b/x", "sub/b.go", "sub/deep/c.pyc", "node_modules/x/index.js", "sub/node_modules/y.js", "build/out"} {
		h.file("proj/" + file)
	}
	h.link("proj/build/escape", "/etc/passwd") // in a directory that the patterns exclude
	h.fifo("proj/node_modules/pipe")
	h.link("proj/inside", "sub/b.go")
	h.link("proj/sub/top", "..")
	h.link("proj/sub/abs", h.path("proj/sub/deep"))
	h.link("proj/gone", "sub/none")
	excludes := []string{"node_modules", "/build/", "*.pyc", "main.go"}

	entries, err := streamed(t, h.path("proj"), excludes...)
	if err != nil {
		t.Fatal(err)
	}
	var got, names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name, "/"))
		if e.Linkname != "" {
			e.Name += " -> " + e.Linkname
		}
		got = append(got, e.Name)
	}
	want := []string{"to/", "to/a/", "to/a/x", "to/a-b/", "to/a-b/x", "to/a.go", "to/gone -> sub/none", "to/inside -> sub/b.go",
		"to/sub/", "to/sub/abs -> deep", "to/sub/b.go", "to/sub/deep/", "to/sub/top -> .."}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}

	var visited []string
	err = hosttree.Check(t.Context(), h.path("proj"), excludes, func(path string, info fs.FileInfo) error {
		if now, err := os.Lstat(path); err != nil || !os.SameFile(now, info) {
			t.Errorf("%s comes with another file: %v", path, err)
		}
		rel, err := filepath.Rel(h.path("proj"), path)
		visited = append(visited, filepath.Join("to", rel))
		return err
	})
	if err != nil || !slices.Equal(visited, names) {
		t.Errorf("checked %q, error %v\nwant %q", visited, err, names)
	}

	if got, err := streamed(t, h.path("proj/a.go"), "*"); err != nil || len(got) != 1 || got[0].Name != "to" || got[0].Typeflag != tar.TypeReg {
		t.Errorf("a file as source: %v, error %v", got, err)
	}
	if got, err := streamed(t, "/", "/*"); err != nil || len(got) != 1 || got[0].Name != "to/" {
		t.Errorf("the root as source: %v, error %v", got, err)
	}
}

func TestRefusals(t *testing.T) {
	long := strings.Repeat("x", 250)
	tests := []struct {
		name   string
		kind   error
		part   string
		source string
		make   func(h *host)
	}{
		{"absolute link out", hosttree.ErrLinkEscapes, `to "/etc/passwd"`, "proj", func(h *host) { h.link("proj/x", "/etc/passwd") }},
		{"relative link out", hosttree.ErrLinkEscapes, "/proj/sub/x", "proj", func(h *host) { h.link("proj/sub/x", "../../home") }},
		{"dangling link out", hosttree.ErrLinkEscapes, "../none", "proj", func(h *host) { h.link("proj/x", "../none") }},
		{"to a directory that begins alike", hosttree.ErrLinkEscapes, "project", "proj", func(h *host) { h.link("proj/x", h.dir("project")) }},
		{"out through an excluded link", hosttree.ErrLinkEscapes, "/proj/x", "proj", func(h *host) {
			h.link("proj/skip", "../home")
			h.file("home/f")
			h.link("proj/x", "skip/f")
		}},
		{"a socket", hosttree.ErrEntryKind, "is a socket", "proj", func(h *host) { h.socket("proj/x") }},
		{"a pipe", hosttree.ErrEntryKind, "is a named pipe", "proj", func(h *host) { h.fifo("proj/x") }},
		{"a pipe as source", hosttree.ErrEntryKind, "is a named pipe", "proj/x", func(h *host) { h.fifo("proj/x") }},
		{"missing", hosttree.ErrUnreadable, "none", "none", func(*host) {}},
		{"below a file", hosttree.ErrUnreadable, "main.go/x", "proj/main.go/x", func(*host) {}},
		{"a link as source", hosttree.ErrSourceSymlink, "/ln", "ln", func(h *host) { h.link("ln", "proj") }},
		{"a dangling link as source", hosttree.ErrSourceSymlink, "/ln", "ln", func(h *host) { h.link("ln", "none") }},
		{"a source through a link", hosttree.ErrSourceSymlink, "/ln/proj", "ln/proj", func(h *host) { h.link("ln", ".") }},
		{"too deep", hosttree.ErrTooLarge, "more than 255 directories", "proj", func(h *host) {
			h.dir("proj" + strings.Repeat("/d", hosttree.MaxDepth))
		}},
		{"a path that is too long", hosttree.ErrUnreadable, "file name too long", "proj", func(h *host) {
			at, err := os.OpenRoot(h.path("proj"))
			h.must(err)
			defer func() { at.Close() }()
			for range unix.PathMax/len(long) + 1 {
				h.must(at.Mkdir(long, 0o755))
				inner, err := at.OpenRoot(long)
				h.must(err)
				at.Close()
				at = inner
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			tt.make(h)
			wantError(t, hosttree.Check(t.Context(), h.path(tt.source), []string{"skip"}, nil), tt.kind, tt.part)
			wantError(t, hosttree.Stream(t.Context(), io.Discard, h.path(tt.source), "/to", []string{"skip"}), tt.kind, tt.part)
		})
	}
	h := newHost(t)
	h.dir("proj" + strings.Repeat("/d", hosttree.MaxDepth-1))
	if err := hosttree.Check(t.Context(), h.path("proj"), nil, nil); err != nil {
		t.Errorf("as deep as may be: %v", err)
	}
	for _, target := range []string{"", "to", "/", "/a/", "/a/../b", "//a"} {
		err := hosttree.Stream(t.Context(), io.Discard, h.path("proj"), target, nil)
		wantError(t, err, hosttree.ErrTarget, "cannot be the target")
	}
}

func TestVisit(t *testing.T) {
	h := newHost(t)
	keep := func(string, fs.FileInfo) error { return nil }
	if err := hosttree.CheckLimited(t.Context(), h.path("proj"), 2, keep); err != nil {
		t.Error(err)
	}
	wantError(t, hosttree.CheckLimited(t.Context(), h.path("proj"), 1, keep), hosttree.ErrTooLarge, "more than 1 entries")
	stop := errors.New("stop")
	if err := hosttree.Check(t.Context(), h.path("proj"), nil, func(string, fs.FileInfo) error { return stop }); err != stop {
		t.Errorf("the visitor's error is %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	h.file("proj/z")
	err := hosttree.Check(ctx, h.path("proj"), nil, func(path string, _ fs.FileInfo) error {
		if ctx.Err() != nil {
			t.Errorf("went on to %s", path)
		}
		if path == h.path("proj/main.go") {
			cancel(stop)
		}
		return nil
	})
	if err != stop {
		t.Errorf("after its context's end the check says %v", err)
	}
}

// TestReplacedMeanwhile: what takes an entry's place after the walk looked at it is neither entered nor read.
func TestReplacedMeanwhile(t *testing.T) {
	files := map[string]func(h *host){
		"a link out":       func(h *host) { h.link("proj/sub/f", h.path("secret/f")) },
		"a link within":    func(h *host) { h.file("proj/sub/g"); h.link("proj/sub/f", "g") },
		"another file":     func(h *host) { h.file("proj/sub/f") },
		"a pipe":           func(h *host) { h.fifo("proj/sub/f") },
		"nothing":          func(*host) {},
		"the very file":    nil,
		"a directory even": func(h *host) { h.dir("proj/sub/f") },
	}
	for name, with := range files {
		t.Run("file by "+name, func(t *testing.T) {
			h := newHost(t)
			h.file("secret/f")
			h.file("proj/sub/f")
			err := hosttree.Walk(t.Context(), h.path("proj/sub"), func(path string, open func() (*os.File, fs.FileInfo, error)) error {
				if with != nil {
					h.must(os.Rename(path, h.path("f")))
					with(h)
				}
				f, _, err := open()
				if err == nil {
					f.Close()
				}
				return err
			})
			if with == nil {
				h.must(err)
				return
			}
			wantError(t, err, hosttree.ErrUnreadable, "/proj/sub/f")
		})
	}
	directories := map[string]func(h *host){
		"a link out":        func(h *host) { h.link("proj/sub", h.path("secret")) },
		"a link within":     func(h *host) { h.link("proj/sub", "other") },
		"another directory": func(h *host) { h.file("proj/sub/g") },
		"a file":            func(h *host) { h.file("proj/sub") },
	}
	for name, with := range directories {
		t.Run("directory by "+name, func(t *testing.T) {
			h := newHost(t)
			h.file("secret/f")
			h.file("proj/sub/f")
			h.file("proj/other/f")
			err := hosttree.Check(t.Context(), h.path("proj"), nil, func(path string, _ fs.FileInfo) error {
				if strings.HasPrefix(path, h.path("proj/sub")+"/") || strings.HasPrefix(path, h.path("secret")) {
					t.Errorf("went on to %s", path)
				}
				if path == h.path("proj/sub") {
					h.must(os.Rename(path, h.path("moved")))
					with(h)
				}
				return nil
			})
			wantError(t, err, hosttree.ErrUnreadable, "/proj/sub")
		})
	}
	for name, swap := range map[string][2]func(h *host){
		"file by a directory": {func(h *host) { h.file("proj/sub") }, func(h *host) { h.file("proj/sub/f") }},
		"directory by a file": {func(h *host) { h.dir("proj/sub") }, func(h *host) { h.file("proj/sub") }},
	} {
		// The patterns were asked about the one: "sub/" means directories only.
		t.Run("listed "+name, func(t *testing.T) {
			h := newHost(t)
			swap[0](h)
			err := hosttree.Check(t.Context(), h.path("proj"), nil, func(path string, _ fs.FileInfo) error {
				if path == h.path("proj/main.go") {
					h.must(os.Rename(h.path("proj/sub"), h.path("moved")))
					swap[1](h)
				}
				return nil
			})
			wantError(t, err, hosttree.ErrUnreadable, "/proj/sub")
		})
	}
}
