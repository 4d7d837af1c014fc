package spec_test

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/server/spec"
)

// walked lists the paths of a copy, links as "path -> text".
func walked(t *testing.T, source string, patterns ...string) ([]string, error) {
	t.Helper()
	x, err := spec.NewExcluder(patterns)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	err = spec.WalkCopy(source, x, func(e spec.CopyEntry) error {
		if e.Link != "" {
			e.Path += " -> " + e.Link
		}
		paths = append(paths, e.Path)
		return nil
	})
	return paths, err
}

func TestWalkCopy(t *testing.T) {
	m := newMachine(t)
	for _, file := range []string{"a.go", "sub/b.go", "sub/deep/c.pyc", "node_modules/x/index.js", "sub/node_modules/y.js", "build/out"} {
		m.file("proj/" + file)
	}
	m.link("proj/build/escape", "/etc/passwd") // in a directory that the patterns exclude
	m.fifo("proj/node_modules/pipe")
	m.link("proj/inside", "sub/b.go")
	m.link("proj/sub/top", "..")
	m.link("proj/sub/abs", m.path("proj/sub/deep"))
	m.link("proj/gone", "sub/none")
	got, err := walked(t, m.path("proj"), "node_modules", "/build/", "*.pyc", "main.go")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{".", "a.go", "gone -> sub/none", "inside -> sub/b.go", "sub", "sub/abs -> deep", "sub/b.go", "sub/deep", "sub/top -> .."}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if got, err := walked(t, m.path("proj/a.go"), "*"); err != nil || !slices.Equal(got, []string{"."}) {
		t.Errorf("a file as source: %q, error %v", got, err)
	}
}

func TestWalkCopyRefusals(t *testing.T) {
	tests := []struct {
		name, reason, part string
		make               func(m *machine)
	}{
		{"absolute link out", spec.ReasonCopyLinkEscapes, `to "/etc/passwd"`, func(m *machine) { m.link("proj/x", "/etc/passwd") }},
		{"relative link out", spec.ReasonCopyLinkEscapes, "/proj/sub/x", func(m *machine) { m.link("proj/sub/x", "../../home") }},
		{"dangling link out", spec.ReasonCopyLinkEscapes, "../none", func(m *machine) { m.link("proj/x", "../none") }},
		{"to a directory that begins alike", spec.ReasonCopyLinkEscapes, "project", func(m *machine) { m.link("proj/x", m.dir("project")) }},
		{"out through an excluded link", spec.ReasonCopyLinkEscapes, "/proj/x", func(m *machine) {
			m.link("proj/skip", "../home")
			m.file("home/f")
			m.link("proj/x", "skip/f")
		}},
		{"a socket", spec.ReasonCopyEntryKind, "is a socket", func(m *machine) { m.socket("proj/x") }},
		{"a pipe", spec.ReasonCopyEntryKind, "is a named pipe", func(m *machine) { m.fifo("proj/x") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			tt.make(m)
			_, err := walked(t, m.path("proj"), "skip")
			wantRefusal(t, err, tt.reason, "", tt.part)
		})
	}
	t.Run("missing", func(t *testing.T) {
		_, err := walked(t, filepath.Join(t.TempDir(), "none"))
		wantRefusal(t, err, spec.ReasonSourceUnreadable, "", "none")
	})
	t.Run("too many", func(t *testing.T) {
		m := newMachine(t)
		x, _ := spec.NewExcluder(nil)
		keep := func(spec.CopyEntry) error { return nil }
		if err := spec.WalkCopyLimited(m.path("proj"), x, 2, keep); err != nil {
			t.Error(err)
		}
		wantRefusal(t, spec.WalkCopyLimited(m.path("proj"), x, 1, keep), spec.ReasonCopyTooLarge, "", "more than 1 entries")
	})
	t.Run("error of the visitor", func(t *testing.T) {
		m := newMachine(t)
		x, _ := spec.NewExcluder(nil)
		stop := errors.New("stop")
		if err := spec.WalkCopy(m.path("proj"), x, func(spec.CopyEntry) error { return stop }); err != stop {
			t.Errorf("error %v", err)
		}
	})
}

func TestExcluder(t *testing.T) {
	tests := []struct {
		name     string
		patterns string // separated by blanks
		out, in  string // separated by blanks; a directory ends in /
	}{
		{"nothing", "", "", "a a/b"},
		{"a name at any depth", ".git", ".git .git/ a/b/.git", ".gitignore a.git"},
		{"a star", "*.pyc", "a.pyc x/y/.pyc", "a.py x.pyc.d"},
		{"from the top", "/a", "a a/", "b/a"},
		{"with a slash, from the top", "a/b", "a/b", "x/a/b b a"},
		{"directories only", "build/", "build/ x/build/", "build x/build"},
		{"taken back", "*.log !keep.log", "a.log", "keep.log x/keep.log"},
		{"the last wins", "!a a", "a", ""},
		{"taken back and lost again", "*.c !x.c x.*", "x.c", ""},
		{"any depth by **", "**/foo /a/**/z", "foo x/y/foo a/z a/b/c/z", "foobar b/a/z"},
		{"contents by **", "a/** !a/keep", "a/x a/b/", "a/ a/keep"},
		{"a star stays in its directory", "a/*", "a/b", "a/b/c x/a/b"},
		{"a question mark", "?.c", "a.c", "ab.c .c"},
		{"classes", "[ab].c [!x-z]", "a.c q", "c.c x"},
		{"braces are plain", "{a,b}", "{a,b}", "a b"},
		{"escapes", `\!a \#b c\*`, "!a #b c*", "a b cd"},
		{"comments", "#a", "", "a #a"},
		{"double slashes", "a//b", "a/b", ""},
		{"only a slash", "/", "", "a a/"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x, err := spec.NewExcluder(append(strings.Fields(tt.patterns), "", "  "))
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]bool{}
			for _, p := range strings.Fields(tt.out) {
				want[p] = true
			}
			for _, p := range strings.Fields(tt.in) {
				want[p] = false
			}
			for _, p := range slices.Sorted(maps.Keys(want)) {
				if got := x.Excluded(strings.TrimSuffix(p, "/"), strings.HasSuffix(p, "/")); got != want[p] {
					t.Errorf("%s: excluded %t", p, got)
				}
			}
		})
	}
	x, err := spec.NewExcluder([]string{`a\ `, "b  "})
	if err != nil || !x.Excluded("a ", false) || !x.Excluded("b", false) {
		t.Errorf("blanks at the end: error %v", err)
	}
	for _, bad := range []string{"[", "a[b", `a\`, "a\x00"} {
		_, err := spec.NewExcluder([]string{"ok", bad})
		wantRefusal(t, err, spec.ReasonExcludePattern, "[1]", "is not a pattern")
	}
}
