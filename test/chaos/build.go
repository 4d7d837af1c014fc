package chaos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build builds the agboxd of this module below bin/test, with the tag crashpoints, and returns its path. The
// agbox-init in it is the one that make build has placed.
func Build(ctx context.Context) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(root, "cmd", "agboxd", "embedded", "agbox-init")); err != nil {
		return "", fmt.Errorf("%w: run make build first", err)
	}
	path := filepath.Join(root, "bin", "test", "agboxd-crashpoints")
	fresh := fmt.Sprintf("%s-%d", path, os.Getpid())
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "crashpoints", "-o", fresh, "./cmd/agboxd")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, os.Rename(fresh, path)
}

// Built returns the path of the agboxd that make build has placed in this module.
func Built(ctx context.Context) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", "agboxd")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: run make build first", err)
	}
	return path, nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}
