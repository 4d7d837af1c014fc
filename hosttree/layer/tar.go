package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Tar writes what was added and changed as a tar stream, names as in Change.Path, in the order of Walk; a file with several
// links is one the first time and a link to that name from then on. What has a problem is left out, and so is what was
// removed. A file that is written to while it is read ends the stream with ErrUnstable, before the file's last byte.
func (l Layer) Tar(ctx context.Context, to io.Writer) error {
	out := tar.NewWriter(to)
	first := map[inode]string{}
	err := l.Walk(ctx, func(c *Change) error {
		if c.Kind == Removed || c.Problem != "" {
			return nil
		}
		return c.write(ctx, out, first)
	})
	if err != nil {
		return err
	}
	return out.Close()
}

func (c *Change) write(ctx context.Context, out *tar.Writer, first map[inode]string) error {
	header := &tar.Header{Format: tar.FormatPAX, Name: c.Path, Mode: int64(c.Mode), ModTime: c.ModTime}
	switch c.Type {
	case Directory:
		header.Typeflag, header.Name = tar.TypeDir, c.Path+"/"
		return out.WriteHeader(header)
	case Symlink:
		header.Typeflag, header.Linkname = tar.TypeSymlink, c.LinkTarget
		return out.WriteHeader(header)
	}
	if c.links > 1 {
		if name, known := first[c.id]; known {
			header.Typeflag, header.Linkname = tar.TypeLink, name
			return out.WriteHeader(header)
		}
	}
	file, err := c.directory.open(c.name, 0)
	if err != nil {
		return ignoreGone(err)
	}
	defer file.Close()
	var before unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &before); err != nil {
		return err
	}
	if typeOf(&before) != File {
		return nil
	}
	header.Typeflag, header.Size = tar.TypeReg, before.Size
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	if err := copyStable(ctx, out, file, &before); err != nil {
		return fmt.Errorf("%q: %w", c.Path, err)
	}
	if c.links > 1 && len(first) < maxLinks {
		first[c.id] = c.Path
	}
	return nil
}

// copyStable holds the last byte back until it has seen that nobody wrote to the file meanwhile.
func copyStable(ctx context.Context, to io.Writer, file *os.File, before *unix.Stat_t) error {
	if before.Size == 0 {
		return nil
	}
	n, err := io.Copy(to, io.LimitReader(reader{ctx, file}, before.Size-1))
	if err != nil {
		return err
	}
	last := make([]byte, 1)
	if n == before.Size-1 {
		_, err = io.ReadFull(file, last)
	} else {
		err = io.ErrUnexpectedEOF
	}
	var after unix.Stat_t
	if statErr := unix.Fstat(int(file.Fd()), &after); statErr != nil {
		return statErr
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || after.Size != before.Size || after.Mtim != before.Mtim {
		return ErrUnstable
	} else if err != nil {
		return err
	}
	_, err = to.Write(last)
	return err
}

// reader ends with its context.
type reader struct {
	ctx  context.Context
	from io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}
