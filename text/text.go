// Package text makes what others wrote fit for messages, logs and terminals. It is linked into agbox-init too, and needs
// little.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bound returns s as valid UTF-8 of at most max bytes, which must be 3 or more: what is none is replaced, and of what is too
// long the middle is left out.
func Bound(s string, max int) string {
	if len(s) > max {
		half := (max - len("…")) / 2
		s = strings.ToValidUTF8(s[:half], "") + "…" + strings.ToValidUTF8(s[len(s)-half:], "")
	}
	return strings.ToValidUTF8(s, "?")
}

// Line returns s as a terminal may show it on one line: whatever would do something there is written as Go writes it in a
// string, \n or \x1b or \u202e. Letters of any script stay.
func Line(s string) string { return escape(s, "") }

// Lines is Line, but for line breaks and tabs, which stay.
func Lines(s string) string { return escape(s, "\n\t") }

func escape(s, kept string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return acts(r) && !strings.ContainsRune(kept, r) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + hex(rune(s[0]), 2))
		case !acts(r) || strings.ContainsRune(kept, r):
			b.WriteString(s[:size])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x80:
			b.WriteString(`\x` + hex(r, 2))
		case r < 0x10000:
			b.WriteString(`\u` + hex(r, 4))
		default:
			b.WriteString(`\U` + hex(r, 8))
		}
		s = s[size:]
	}
	return b.String()
}

// acts reports whether a terminal may do something else at r than show it: control characters, those that turn the direction of
// writing or are not seen, and line breaks of Unicode's own. The two that join letters or keep them apart only do that.
func acts(r rune) bool {
	const keepApart, join = '\u200c', '\u200d'
	return r != keepApart && r != join && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

func hex(r rune, digits int) string {
	b := make([]byte, digits)
	for i := range b {
		b[digits-1-i] = "0123456789abcdef"[r&15]
		r >>= 4
	}
	return string(b)
}
