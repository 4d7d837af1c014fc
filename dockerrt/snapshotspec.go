package dockerrt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// The spec of a snapshot, with the variables that its image must not show, is a file of the daemon's own, named as the image
// is tagged. A snapshot whose file is lost has no variables.

func (l layout) snapshotSpecs() string { return filepath.Join(l.root, "snapshots") }

func (l layout) snapshotSpec(image string) string {
	_, tag, _ := strings.Cut(image, ":")
	return filepath.Join(l.snapshotSpecs(), tag)
}

func (l layout) keepSpec(image string, spec *agboxv1.CreateSpec) error {
	if err := os.MkdirAll(l.snapshotSpecs(), 0o700); err != nil {
		return err
	}
	text, err := proto.Marshal(spec)
	if err == nil {
		err = os.WriteFile(l.snapshotSpec(image), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot keep the snapshot's spec: %w", err)
	}
	return nil
}

// keptSpec fails with fs.ErrNotExist where there is none.
func (l layout) keptSpec(image string) (*agboxv1.CreateSpec, error) {
	text, err := os.ReadFile(l.snapshotSpec(image))
	if err != nil {
		return nil, err
	}
	spec := &agboxv1.CreateSpec{}
	if err := proto.Unmarshal(text, spec); err != nil {
		return nil, fmt.Errorf("%s: %w", l.snapshotSpec(image), err)
	}
	return spec, nil
}

func (l layout) dropSpec(image string) error {
	if err := os.Remove(l.snapshotSpec(image)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// dropSpecs removes what belongs to none of these images and was written before since: a snapshot that is being made has
// its file first.
func (l layout) dropSpecs(images map[string]bool, since time.Time) error {
	entries, err := os.ReadDir(l.snapshotSpecs())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || images[snapshotPrefix+entry.Name()] || !info.ModTime().Before(since) {
			continue
		}
		if err := l.dropSpec(snapshotPrefix + entry.Name()); err != nil {
			return err
		}
	}
	return nil
}
