package spec_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

func TestTools(t *testing.T) {
	m := newMachine(t)
	for _, dir := range []string{".claude", ".codex", ".agents", ".config/gh", ".cache/uv", ".local/share/uv", ".npm", ".cache/agents-sandbox-apt"} {
		m.dir("home/" + dir)
	}
	m.file("dotfiles/claude.json")
	m.link("home/.claude.json", "../dotfiles/claude.json")
	m.env["SSH_AUTH_SOCK"] = m.socket("agent/sock")
	s := &agboxv1.CreateSpec{Image: "x", BuiltinTools: []string{"claude", "codex", "git", "uv", "npm", "apt"}}
	got, err := m.resolve(s)
	if err != nil {
		t.Fatal(err)
	}
	want := []spec.Mount{
		{m.path("home/.claude"), "/home/agbox/.claude", false, true, "claude"},
		{m.path("dotfiles/claude.json"), "/home/agbox/.claude.json", false, true, "claude"},
		{m.path("home/.codex"), "/home/agbox/.codex", false, true, "codex"},
		{m.path("home/.agents"), "/home/agbox/.agents", false, true, "codex"},
		{m.path("agent/sock"), "/ssh-agent", false, false, "git"},
		{m.path("home/.config/gh"), "/home/agbox/.config/gh", false, false, "git"},
		{m.path("home/.cache/uv"), "/home/agbox/.cache/uv", false, true, "uv"},
		{m.path("home/.local/share/uv"), "/home/agbox/.local/share/uv", false, true, "uv"},
		{m.path("home/.npm"), "/home/agbox/.npm", false, true, "npm"},
		{m.path("home/.cache/agents-sandbox-apt"), "/var/cache/apt/archives", false, true, "apt"},
	}
	if !slices.Equal(got.Mounts, want) {
		t.Errorf("mounts\n%v\nwant\n%v", got.Mounts, want)
	}
	if want := map[string]string{"SSH_AUTH_SOCK": "/ssh-agent"}; !maps.Equal(got.Envs, want) || len(got.Skipped) != 0 {
		t.Errorf("envs %v, skipped %v", got.Envs, got.Skipped)
	}

	for i := range want {
		want[i].Writable, want[i].CopyOnWrite = want[i].CopyOnWrite, false
	}
	s.BuiltinTools = []string{"claude:rw", "codex:rw", "git", "uv:rw", "npm:rw", "apt:rw"}
	if got, err = m.resolve(s); err != nil || !slices.Equal(got.Mounts, want) {
		t.Errorf("written through: mounts\n%v\nwant\n%v, %v", got.Mounts, want, err)
	}

	s.Envs = map[string]string{"SSH_AUTH_SOCK": "/mine"}
	if got, err = m.resolve(s); err != nil || len(got.Envs) != 0 {
		t.Errorf("envs %v, error %v: the spec's own variable must win", got.Envs, err)
	}
}

func TestOptionalToolsAreSkipped(t *testing.T) {
	m := newMachine(t)
	m.fifo("home/.npm")
	for name, socket := range map[string]string{"unset": "", "relative": "agent", "missing": m.path("none"), "no socket": m.path("proj")} {
		m.env["SSH_AUTH_SOCK"] = socket
		got, err := m.resolve(&agboxv1.CreateSpec{Image: "x", BuiltinTools: []string{"git", "uv", "npm", "apt"}})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Mounts) != 0 || len(got.Envs) != 0 {
			t.Errorf("%s: mounts %v, envs %v", name, got.Mounts, got.Envs)
		}
		if len(got.Skipped) != 6 || !strings.HasPrefix(got.Skipped[0], "builtin tool git: not mounting /ssh-agent: ") ||
			!strings.Contains(got.Skipped[4], "is no file or directory") || !strings.Contains(got.Skipped[5], "missing on this host") {
			t.Errorf("%s: skipped %q", name, got.Skipped)
		}
	}
}
