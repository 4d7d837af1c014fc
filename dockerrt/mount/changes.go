package mount

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agbox-dev/agbox/hosttree/layer"
)

// Changes tells every change in a copy-on-write mount, whose index in the sandbox's spec and source these are; see layer.Walk.
func (ms *Mounts) Changes(ctx context.Context, sandboxID string, index int, source string, visit func(*layer.Change) error) error {
	l, err := ms.layerOf(sandboxID, index, source)
	if err != nil {
		return err
	}
	return l.Walk(ctx, visit)
}

// ChangesTar writes what was added and changed in a copy-on-write mount; see layer.Tar.
func (ms *Mounts) ChangesTar(ctx context.Context, sandboxID string, index int, source string, to io.Writer) error {
	l, err := ms.layerOf(sandboxID, index, source)
	if err != nil {
		return err
	}
	return l.Tar(ctx, to)
}

func (ms *Mounts) layerOf(sandboxID string, index int, source string) (layer.Layer, error) {
	dir := ms.layer(sandboxID, index)
	made, err := os.Lstat(filepath.Join(dir, layerMade))
	if errors.Is(err, fs.ErrNotExist) {
		return layer.Layer{}, fmt.Errorf("%w: %w", layer.ErrGone, err)
	} else if err != nil {
		return layer.Layer{}, err
	}
	return layer.Layer{Lower: source, Upper: filepath.Join(dir, layerUpper), Made: made.ModTime()}, nil
}
