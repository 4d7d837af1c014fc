package snapshot

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

func (st *Store) spec(image string) string {
	_, tag, _ := strings.Cut(image, ":")
	return filepath.Join(st.config.Dir, tag)
}

func (st *Store) keepSpec(image string, spec *agboxv1.CreateSpec) error {
	if err := os.MkdirAll(st.config.Dir, 0o700); err != nil {
		return err
	}
	text, err := proto.Marshal(spec)
	if err == nil {
		err = os.WriteFile(st.spec(image), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot keep the snapshot's spec: %w", err)
	}
	return nil
}

// keptSpec fails with fs.ErrNotExist where there is none.
func (st *Store) keptSpec(image string) (*agboxv1.CreateSpec, error) {
	text, err := os.ReadFile(st.spec(image))
	if err != nil {
		return nil, err
	}
	spec := &agboxv1.CreateSpec{}
	if err := proto.Unmarshal(text, spec); err != nil {
		return nil, fmt.Errorf("%s: %w", st.spec(image), err)
	}
	return spec, nil
}

func (st *Store) dropSpec(image string) error {
	if err := os.Remove(st.spec(image)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// dropSpecs removes what belongs to none of these images and was written before since: a snapshot that is being made has
// its file first.
func (st *Store) dropSpecs(images map[string]bool, since time.Time) error {
	entries, err := os.ReadDir(st.config.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || images[namePrefix+entry.Name()] || !info.ModTime().Before(since) {
			continue
		}
		if err := st.dropSpec(namePrefix + entry.Name()); err != nil {
			return err
		}
	}
	return nil
}
