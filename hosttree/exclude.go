package hosttree

import (
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// excluder decides which entries of a copy are left out, by the patterns that the package comment explains. It is safe for
// concurrent use.
type excluder struct {
	rules []rule
}

type rule struct {
	glob    string
	negated bool
	dirOnly bool
}

// newExcluder compiles patterns; a malformed one is an *Error of ErrPattern.
func newExcluder(patterns []string) (*excluder, error) {
	x := &excluder{}
	for i, pattern := range patterns {
		r, ok := parseRule(pattern)
		if !ok {
			continue
		}
		if strings.ContainsRune(r.glob, 0) || !doublestar.ValidatePattern(r.glob) {
			return nil, &Error{Kind: ErrPattern, Pattern: i, Message: shown(pattern) +
				` is not a pattern; close its brackets, or write \ before a character that is meant literally`}
		}
		x.rules = append(x.rules, r)
	}
	return x, nil
}

// excluded reports whether the entry at the slash-separated path rel below the source is left out. What
// lies in an excluded directory is excluded too: callers do not ask for it, they do not enter.
func (x *excluder) excluded(rel string, dir bool) bool {
	for i := len(x.rules) - 1; i >= 0; i-- {
		r := x.rules[i]
		if (dir || !r.dirOnly) && doublestar.MatchUnvalidated(r.glob, rel) {
			return !r.negated
		}
	}
	return false
}

// parseRule turns a .gitignore pattern into a glob that matches the whole path from the source on.
func parseRule(pattern string) (rule, bool) {
	p := pattern
	for strings.HasSuffix(p, " ") && !strings.HasSuffix(p, `\ `) {
		p = p[:len(p)-1]
	}
	if p == "" || p[0] == '#' {
		return rule{}, false
	}
	r := rule{negated: p[0] == '!'}
	if r.negated {
		p = p[1:]
	}
	if trimmed := strings.TrimRight(p, "/"); trimmed != p {
		p, r.dirOnly = trimmed, true
	}
	if p == "" {
		return rule{}, false
	}
	p = strings.NewReplacer(`\\`, `\\`, `\{`, `\{`, `\}`, `\}`, "{", `\{`, "}", `\}`).Replace(p)
	if !strings.Contains(p, "/") {
		p = "**/" + p
	}
	p = strings.TrimPrefix(p, "/")
	if strings.HasSuffix(p, "/**") {
		p += "/*"
	}
	r.glob = path.Clean(p)
	return r, true
}
