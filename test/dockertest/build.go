package dockertest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// InitBinary builds cmd/agbox-init, static as in a release, once per test process and returns its path. Later
// calls, and later test processes, see the same path; the file is replaced atomically, never rewritten.
func InitBinary(t testing.TB) string {
	t.Helper()
	path, err := initBinary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var initBinary = sync.OnceValues(func() (string, error) {
	return buildStatic("agbox-init", "./cmd/agbox-init")
})

var probeBinary = sync.OnceValues(func() (string, error) {
	return buildStatic("probe", "./test/dockertest/probe")
})

// IntruderBinary builds the program that tries walls from inside, as InitBinary does.
func IntruderBinary(t testing.TB) string {
	t.Helper()
	path, err := buildStatic("intruder", "./test/dockertest/intruder")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Program builds a program of this module as InitBinary does, with flags for go build beside the usual ones, and returns its path.
func Program(name, pkg string, flags ...string) (string, error) {
	return buildStatic(name, pkg, flags...)
}

// ModuleRoot is where this module's go.mod lies.
var ModuleRoot = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if filepath.Base(mod) != "go.mod" {
		return "", fmt.Errorf("dockertest: %q is not a module: run inside the project's tree", mod)
	}
	return filepath.Dir(mod), nil
})

// sameContent reports whether both files are there and hold the same.
func sameContent(there, fresh string) (bool, error) {
	old, err := os.ReadFile(there)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	made, freshErr := os.ReadFile(fresh)
	return bytes.Equal(old, made), errors.Join(err, freshErr)
}

// building is held by the one build of this process.
var building sync.Mutex

// buildStatic builds a program of this module into bin/test/ of its tree. It stays the same file where it is the same
// program: sandboxes of other test processes have it mounted.
func buildStatic(name, pkg string, flags ...string) (string, error) {
	building.Lock()
	defer building.Unlock()
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "test")
	path, fresh := filepath.Join(dir, name), filepath.Join(dir, fmt.Sprintf(".%s-%d", name, os.Getpid()))
	build := exec.Command("go", append(append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", fresh}, flags...), pkg)...)
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	if same, err := sameContent(path, fresh); same || err != nil {
		return path, errors.Join(err, os.Remove(fresh))
	}
	return path, os.Rename(fresh, path)
}
