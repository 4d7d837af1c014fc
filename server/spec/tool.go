package spec

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// toolHome is the home directory that tool mounts lie under in the sandbox.
const toolHome = "/home/agbox"

// tool is a named set of mounts; an optional one goes without those that this host does not have.
type tool struct {
	name     string
	optional bool
	mounts   []toolMount
}

// toolMount is a path under the home directory, or a Unix socket that an environment variable names.
type toolMount struct {
	home      string
	socketEnv string
	target    string
	// writable is what the tool writes to: a layer of the sandbox's own, or the host's where that is asked for.
	writable bool
}

// named reports whether word, which was accepted, means the tool.
func (t tool) named(word string) bool {
	name, _, _ := strings.Cut(word, ":")
	return name == t.name
}

var tools = []tool{
	{name: "claude", mounts: []toolMount{
		{home: ".claude", target: toolHome + "/.claude", writable: true},
		{home: ".claude.json", target: toolHome + "/.claude.json", writable: true},
	}},
	{name: "codex", mounts: []toolMount{
		{home: ".codex", target: toolHome + "/.codex", writable: true},
		{home: ".agents", target: toolHome + "/.agents", writable: true},
	}},
	{name: "git", optional: true, mounts: []toolMount{
		{socketEnv: "SSH_AUTH_SOCK", target: "/ssh-agent"},
		{home: ".config/gh", target: toolHome + "/.config/gh"},
	}},
	{name: "uv", optional: true, mounts: []toolMount{
		{home: ".cache/uv", target: toolHome + "/.cache/uv", writable: true},
		{home: ".local/share/uv", target: toolHome + "/.local/share/uv", writable: true},
	}},
	{name: "npm", optional: true, mounts: []toolMount{
		{home: ".npm", target: toolHome + "/.npm", writable: true},
	}},
	{name: "apt", optional: true, mounts: []toolMount{
		{home: ".cache/agents-sandbox-apt", target: "/var/cache/apt/archives", writable: true},
	}},
}

func (r *resolver) tools() error {
	seen := map[string]bool{}
	for i, word := range r.out.Spec.BuiltinTools {
		field := element("create_spec.builtin_tools", i)
		name, through, err := toolMode(field, word)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(tools, func(t tool) bool { return t.name == name })
		if at < 0 {
			return refuse(ReasonToolUnknown, field, "there is no builtin tool %s; choose from %s", quote(name), toolNames())
		}
		if seen[name] {
			return refuse(ReasonToolRepeated, field, "%s is named twice; remove one", quote(name))
		}
		seen[name] = true
		for _, m := range tools[at].mounts {
			if err := r.tool(field, tools[at], m, through); err != nil {
				return err
			}
		}
	}
	return nil
}

// tool adds one mount of t. Its source may be a symbolic link, as files under the home directory often are: what
// is mounted, and checked, is what the link leads to. What the tool writes goes to a layer of the sandbox's own, unless
// through says that it goes to the host's files.
func (r *resolver) tool(field string, t tool, m toolMount, through bool) error {
	source, missing := r.toolSource(m)
	if missing != "" {
		if t.optional {
			r.out.Skipped = append(r.out.Skipped, fmt.Sprintf("builtin tool %s: not mounting %s: %s", t.name, m.target, missing))
			return nil
		}
		return refuse(ReasonToolSourceMissing, field, "%s needs it: %s; install and start the tool on this host once, or leave it out", t.name, missing)
	}
	mount := Mount{Source: source, Writable: m.writable && through, CopyOnWrite: m.writable && !through, Tool: t.name}
	err := r.mountSource(field, mount)
	if err != nil {
		return err
	}
	if mount.Target, err = r.targets.claim(field, m.target); err != nil {
		return err
	}
	r.out.Mounts = append(r.out.Mounts, mount)
	if _, set := r.out.Spec.Envs[m.socketEnv]; m.socketEnv != "" && !set {
		r.out.Envs[m.socketEnv] = mount.Target
	}
	return nil
}

// toolSource finds what m mounts on this host, or says why it cannot be.
func (r *resolver) toolSource(m toolMount) (source, missing string) {
	kinds, what := fs.ModeDir, "file or directory"
	path := filepath.Join(r.host.Home, m.home)
	if m.socketEnv != "" {
		kinds, what = fs.ModeSocket, "Unix socket"
		if path = r.host.Env(m.socketEnv); path == "" {
			return "", "$" + m.socketEnv + " is not set for the daemon"
		}
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Sprintf("%s is not absolute", quote(path))
	}
	source, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Sprintf("%s is missing on this host", quote(path))
	}
	info, err := os.Lstat(source)
	if err != nil || info.Mode().Type()&^kinds != 0 || m.socketEnv != "" && info.Mode().Type() != kinds {
		return "", fmt.Sprintf("%s is no %s", quote(path), what)
	}
	return source, ""
}

func toolNames() string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.name
	}
	return strings.Join(names, ", ")
}
