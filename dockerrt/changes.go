package dockerrt

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
func (d *Docker) Changes(ctx context.Context, sandboxID string, index int, source string, visit func(*layer.Change) error) error {
	l, err := d.layout.changed(sandboxID, index, source)
	if err != nil {
		return err
	}
	return l.Walk(ctx, visit)
}

// ChangesTar writes what was added and changed in a copy-on-write mount; see layer.Tar.
func (d *Docker) ChangesTar(ctx context.Context, sandboxID string, index int, source string, to io.Writer) error {
	l, err := d.layout.changed(sandboxID, index, source)
	if err != nil {
		return err
	}
	return l.Tar(ctx, to)
}

func (l layout) changed(sandboxID string, index int, source string) (layer.Layer, error) {
	dir := l.layer(sandboxID, index)
	made, err := os.Lstat(filepath.Join(dir, layerMade))
	if errors.Is(err, fs.ErrNotExist) {
		return layer.Layer{}, fmt.Errorf("%w: %w", layer.ErrGone, err)
	} else if err != nil {
		return layer.Layer{}, err
	}
	return layer.Layer{Lower: source, Upper: filepath.Join(dir, layerUpper), Made: made.ModTime()}, nil
}
