package text_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/agbox-dev/agbox/text"
)

func TestBound(t *testing.T) {
	for s, want := range map[string]string{
		"":                                  "",
		"plain words":                       "plain words",
		"a\xffb":                            "a?b",
		strings.Repeat("x", 40):             strings.Repeat("x", 40),
		strings.Repeat("x", 41):             strings.Repeat("x", 18) + "…" + strings.Repeat("x", 18),
		strings.Repeat("é", 30):             strings.Repeat("é", 9) + "…" + strings.Repeat("é", 9),
		strings.Repeat("a\xff", 30):         strings.Repeat("a", 9) + "…" + strings.Repeat("a", 9),
		"\xf0\x9f" + strings.Repeat("x", 5): "?xxxxx",
	} {
		if got := text.Bound(s, 40); got != want {
			t.Errorf("of %q is left %q, want %q", s, got, want)
		}
	}
}

func FuzzBound(f *testing.F) {
	f.Add("a\xff", 5)
	f.Fuzz(func(t *testing.T, s string, size int) {
		if size < 3 || size > 1000 {
			return
		}
		if got := text.Bound(s, size); len(got) > size || !utf8.ValidString(got) {
			t.Errorf("of %q is left %q, of %d bytes", s, got, size)
		}
	})
}

func TestLine(t *testing.T) {
	for s, want := range map[string]string{
		"plain, ünïcode, 漢字 and 🙂 \ufffd": "plain, ünïcode, 漢字 and 🙂 \ufffd",
		"a\x1b[2Jb\a\x7f":                 `a\x1b[2Jb\x07\x7f`,
		"c1 \u009b31m":                    `c1 \u009b31m`,
		"turned \u202egnp.exe\u202c":      `turned \u202egnp.exe\u202c`,
		"line\nand\ttab\r":                `line\nand\ttab\r`,
		"no \xff utf-8, \u2028 \ufeff":    `no \xff utf-8, \u2028 \ufeff`,
		"hidden \U000e0041":               `hidden \U000e0041`,
	} {
		if got := text.Line(s); got != want {
			t.Errorf("%q is shown as %s, want %s", s, got, want)
		}
	}
	if got := text.Lines("one\n\ttwo\x1b\r\n"); got != "one\n\ttwo\\x1b\\r\n" {
		t.Errorf("lines are shown as %q", got)
	}
}
