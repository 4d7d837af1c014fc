package chaos

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/agbox-dev/agbox/test/dockertest"
)

// Build builds the agboxd of this module below bin/test, with the tag crashpoints, and returns its path. The
// agbox-init in it is the one that make build has placed.
func Build() (string, error) {
	if _, err := placed("cmd/agboxd/embedded/agbox-init"); err != nil {
		return "", err
	}
	return dockertest.Program("agboxd-crashpoints", "./cmd/agboxd", "-tags", "crashpoints")
}

// Built returns the path of the agboxd that make build has placed in this module.
func Built() (string, error) { return placed("bin/agboxd") }

// placed is the path of what make build has made.
func placed(name string) (string, error) {
	root, err := dockertest.ModuleRoot()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: run make build first", err)
	}
	return path, nil
}
