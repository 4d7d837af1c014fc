package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/agbox-dev/agbox/persist"
	"github.com/agbox-dev/agbox/sdk/raw"
)

// backup writes the running daemon's database to path, which holds all of it afterwards or what it held before.
func backup(ctx context.Context, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	client, err := raw.Dial()
	if err != nil {
		return err
	}
	defer client.Close()
	err = persist.PlaceFile(path, 0o600, func(to io.Writer) error { return client.Backup(ctx, to) })
	if errors.Is(err, raw.ErrUnavailable) {
		return fmt.Errorf("%w; while none runs, the database is a file that can be copied as it is", err)
	}
	return err
}
