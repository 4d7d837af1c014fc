//go:build long

package e2b_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/gateway"
	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/agbox-dev/agbox/gateway/e2b"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
	"github.com/agbox-dev/agbox/test/gatewaytest"
	"github.com/agbox-dev/agbox/test/servertest"
)

// oldestNode is the oldest that the packages run on.
const oldestNode = 20

// TestLongE2B: the npm packages of two generations, and a framework's own backend for E2B, do what their documentation says, with
// nothing changed in them but where they find the server.
func TestLongE2B(t *testing.T) {
	node(t)
	suite := installed(t)
	d := servertest.Start(t)
	image := sandboxImage(t)
	g := gatewaytest.Start(t, d.Socket(), access.Token{}, func(c *gateway.Config) {
		c.Templates = map[string]e2b.Template{"base": {Image: image}}
	})
	if err := os.WriteFile(filepath.Join(suite, "suite", "document.mjs"), example(t), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("document", func(t *testing.T) {
		run := exec.CommandContext(t.Context(), "node", filepath.Join("suite", "document.mjs"))
		run.Dir, run.Stderr, run.Env = suite, t.Output(), g.Environ()
		if said, err := run.Output(); err != nil || string(said) != "hello from /home/user/hello.py\n\n" {
			t.Errorf("the program of docs/e2b.md says %q, %v", said, err)
		}
	})
	for _, c := range []struct{ sdk, files string }{
		{"e2b", "commands.test.mjs files.test.mjs life.test.mjs template.test.mjs framework.test.mjs"},
		{"e2b-2.45", "commands.test.mjs files.test.mjs life.test.mjs"},
	} {
		t.Run(c.sdk, func(t *testing.T) {
			args := []string{"--test", "--test-concurrency=2", "--test-timeout=600000", "--test-reporter=spec"}
			for file := range strings.FieldsSeq(c.files) {
				args = append(args, filepath.Join("suite", file))
			}
			run := exec.CommandContext(t.Context(), "node", args...)
			run.Dir, run.Stdout, run.Stderr = suite, t.Output(), t.Output()
			run.Env = append(g.Environ(), "AGBOX_TEST_SDK="+c.sdk)
			if err := run.Run(); err != nil {
				t.Errorf("node --test with %s: %v", c.sdk, err)
			}
		})
	}
}

// example is the program in docs/e2b.md.
func example(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../../docs/e2b.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, found := strings.Cut(string(text), "```js\n")
	program, _, ended := strings.Cut(program, "```")
	if !found || !ended {
		t.Fatal("docs/e2b.md has no program")
	}
	return []byte(program)
}

// node skips a machine that has none, or too old a one.
func node(t *testing.T) {
	t.Helper()
	told, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	if err != nil {
		skiplog.Skip(t, "no node: "+err.Error()+"; install Node 20 or newer and npm")
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(string(told), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldestNode {
		skiplog.Skip(t, "node is "+strings.TrimSpace(string(told))+", and the packages need 20 or newer")
	}
}

// installed is a copy of the suite with the packages that its lock file names.
func installed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, tree{os.DirFS(".")}); err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir, install.Stderr = dir, t.Output()
	if err := install.Run(); err != nil {
		skiplog.Skip(t, "npm ci: "+err.Error()+"; the packages have to be had from npm's registry")
	}
	return dir
}

// tree is a directory without what npm left in it.
type tree struct{ fs.FS }

func (t tree) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(t.FS, name)
	kept := entries[:0]
	for _, entry := range entries {
		if entry.Name() != "node_modules" {
			kept = append(kept, entry)
		}
	}
	return kept, err
}

// sandboxImage makes what programs for E2B expect, once for each recipe.
func sandboxImage(t *testing.T) string {
	t.Helper()
	recipe := exec.CommandContext(t.Context(), "../../.ci/image", "e2b")
	recipe.Stderr = t.Output()
	reference, err := recipe.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf(".ci/image e2b: %v: what is missing is said above", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(reference))
}
