package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

// fileAttacks are by what is put into a sandbox, and by what it has to be taken out.
var fileAttacks = []*attack{
	{point: "B9", name: "a hole of 100 GB in a snapshot", play: func(ctx context.Context, b *box) error {
		if err := b.script(ctx, "truncate -s 100G /hole"); err != nil {
			return err
		}
		err := within(ctx, 2*patience, "snapshot", func(ctx context.Context) error {
			made, err := b.SDK.Snapshot(ctx, b.id, sdk.SnapshotRequest{})
			if err == nil {
				err = errors.Join(errMade, b.SDK.DeleteSnapshot(ctx, made.ID))
			}
			return err
		})
		return errors.Join(refusedWith(err, "SNAPSHOT_TOO_LARGE"), b.works(ctx))
	}},
	{point: "B9", name: "a hole of 1 TB that is taken out", play: func(ctx context.Context, b *box) error {
		if err := b.script(ctx, "truncate -s 1000G /hole"); err != nil {
			return err
		}
		err := within(ctx, patience, "download", func(ctx context.Context) error { return b.take(ctx, "/hole", nil) })
		return errors.Join(refusedWith(err, "TRANSFER_TOO_LARGE"), b.works(ctx))
	}},
	{point: "B11", name: "a name of 50,000 components", play: func(ctx context.Context, b *box) error {
		err := within(ctx, patience, "upload", func(ctx context.Context) error {
			return b.put(ctx, []tar.Header{{Name: strings.Repeat("d/", 50_000) + "f", Mode: 0o644}})
		})
		if err == nil {
			return errors.New("it was taken")
		}
		return errors.Join(ended(err), b.works(ctx))
	}},
	{point: "B11", name: "2,000 directories that the tar does not name", play: func(ctx context.Context, b *box) error {
		var all []tar.Header
		for i := range 1000 {
			all = append(all, tar.Header{Name: fmt.Sprintf("d%d/e/f", i), Mode: 0o644})
		}
		if err := within(ctx, 2*patience, "upload", func(ctx context.Context) error { return b.put(ctx, all) }); err != nil {
			return err
		}
		return b.script(ctx, "test $(find /tmp/up -type f | wc -l) = 1000")
	}},
	{point: "B11", name: "links that are written through", play: func(ctx context.Context, b *box) error {
		for _, all := range [][]tar.Header{
			{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, {Name: "l/pwned", Mode: 0o644}},
			{{Name: "m", Typeflag: tar.TypeSymlink, Linkname: "/etc/pwned"}, {Name: "m", Mode: 0o644}},
			{{Name: "n", Typeflag: tar.TypeSymlink, Linkname: "../../etc"}, {Name: "n/x/pwned", Mode: 0o644}, {Name: "n/pwned", Mode: 0o644}},
		} {
			if err := ended(within(ctx, patience, "upload", func(ctx context.Context) error { return b.put(ctx, all) })); err != nil {
				return err
			}
		}
		return b.script(ctx, "! test -e /etc/pwned && ! test -e /etc/x")
	}},
	{point: "B12", name: "a tree deeper than PATH_MAX", play: func(ctx context.Context, b *box) error {
		result, err := b.run(ctx, []string{"/inside", "deep", "/tmp", "40"})
		if err == nil && result.ExitCode != 0 {
			err = fmt.Errorf("it ended with %d: %.300s", result.ExitCode, result.Stderr)
		}
		if err != nil {
			return err
		}
		whole := false
		err = within(ctx, 2*patience, "download", func(ctx context.Context) error {
			return b.take(ctx, "/tmp", func(h *tar.Header) { whole = whole || strings.HasSuffix(h.Name, "d/last") })
		})
		if err == nil && !whole {
			return errors.New("it was cut in silence")
		}
		if err := ended(err); err != nil {
			return err
		}
		err = within(ctx, 2*patience, "snapshot", func(ctx context.Context) error {
			made, err := b.SDK.Snapshot(ctx, b.id, sdk.SnapshotRequest{})
			if err == nil {
				err = b.SDK.DeleteSnapshot(ctx, made.ID)
			}
			return err
		})
		return errors.Join(ended(err), b.works(ctx))
	}},
}

var errMade = errors.New("it was made")

// refusedWith takes the refusal for good, and nothing else.
func refusedWith(err error, reason string) error {
	if refusal, ok := errors.AsType[*sdk.Error](err); ok && refusal.Reason == reason {
		return nil
	}
	return fmt.Errorf("it is not refused with %s: %v", reason, err)
}

// put uploads entries of a few bytes each to /tmp/up.
func (b *box) put(ctx context.Context, all []tar.Header) error {
	r, w := io.Pipe()
	go func() {
		packed := tar.NewWriter(w)
		text := []byte("pwned\n")
		for _, h := range all {
			h.ModTime = time.Unix(1, 0)
			if h.Typeflag == 0 {
				h.Typeflag, h.Size = tar.TypeReg, int64(len(text))
			}
			err := packed.WriteHeader(&h)
			if err == nil && h.Typeflag == tar.TypeReg {
				_, err = packed.Write(text)
			}
			if err != nil {
				w.CloseWithError(err)
				return
			}
		}
		w.CloseWithError(packed.Close())
	}()
	defer r.Close()
	_, err := b.SDK.UploadTar(ctx, b.id, "/tmp/up", r)
	return err
}

// take reads all of a download.
func (b *box) take(ctx context.Context, path string, seen func(*tar.Header)) error {
	stream, err := b.SDK.DownloadTar(ctx, b.id, path)
	if err != nil {
		return err
	}
	defer stream.Close()
	packed := tar.NewReader(stream)
	for {
		h, err := packed.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if seen != nil {
			seen(h)
		}
	}
}
