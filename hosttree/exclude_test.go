package hosttree_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/hosttree"
)

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
			x, err := hosttree.NewExcluder(append(strings.Fields(tt.patterns), "", "  "))
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
	x, err := hosttree.NewExcluder([]string{`a\ `, "b  "})
	if err != nil || !x.Excluded("a ", false) || !x.Excluded("b", false) {
		t.Errorf("blanks at the end: error %v", err)
	}
	for _, bad := range []string{"[", "a[b", `a\`, "a\x00"} {
		err := hosttree.Check(t.Context(), newHost(t).path("proj"), []string{"ok", bad}, nil)
		wantError(t, err, hosttree.ErrPattern, "is not a pattern")
		if refused, _ := errors.AsType[*hosttree.Error](err); refused.Pattern != 1 {
			t.Errorf("%q: pattern %d", bad, refused.Pattern)
		}
	}
}
