package main

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/agbox-dev/agbox/persist"
)

// embedded holds agbox-init once `make build` has put it there.
//
//go:embed all:embedded
var embedded embed.FS

// placeInit writes the embedded agbox-init below the data directory under the hash of its content, and returns its
// path. Sandboxes of earlier versions keep the one that they were started with.
func placeInit(dataDir string) (string, error) {
	binary, err := embedded.ReadFile("embedded/agbox-init")
	if err != nil {
		return "", errors.New("this agboxd was built without agbox-init: build it with make build")
	}
	sum := sha256.Sum256(binary)
	path := filepath.Join(dataDir, "init", hex.EncodeToString(sum[:8]), "agbox-init")
	if there, err := os.ReadFile(path); err == nil && sha256.Sum256(there) == sum {
		return path, os.Chmod(path, 0o755)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), persist.Sweep(path)); err != nil {
		return "", err
	}
	err = persist.PlaceFile(path, 0o755, func(to io.Writer) error { _, err := to.Write(binary); return err })
	if err != nil {
		return "", fmt.Errorf("cannot place agbox-init: %w", err)
	}
	return path, nil
}
