package spec

import (
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Excluder decides which entries of a copy are left out. Patterns are those of a .gitignore file: one
// without a slash matches at any depth, one with a slash from the top, a trailing slash matches directories
// only, "**" spans directories, "!" takes back what an earlier pattern excluded, the last match wins;
// blank patterns and those that begin with "#" do nothing. It is safe for concurrent use.
type Excluder struct {
	rules []rule
}

type rule struct {
	glob    string
	negated bool
	dirOnly bool
}

// NewExcluder compiles patterns; a malformed one is an *Error whose Field is "[index]".
func NewExcluder(patterns []string) (*Excluder, error) {
	x := &Excluder{}
	for i, pattern := range patterns {
		r, ok := parseRule(pattern)
		if !ok {
			continue
		}
		if strings.ContainsRune(r.glob, 0) || !doublestar.ValidatePattern(r.glob) {
			return nil, refuse(ReasonExcludePattern, element("", i), "%s is not a pattern; close its brackets, or write \\ before a character that is meant literally", shown(pattern))
		}
		x.rules = append(x.rules, r)
	}
	return x, nil
}

// Excluded reports whether the entry at the slash-separated path rel below the source is left out. What
// lies in an excluded directory is excluded too: callers do not ask for it, they do not enter.
func (x *Excluder) Excluded(rel string, dir bool) bool {
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
